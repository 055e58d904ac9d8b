"""Long runs that look for faults: more than a test suite should do each time, the same checks as its short versions."""
