"""The number of examples that a property test tries.

`make test` tries a part of them: enough to catch the recorded mutants. `make test-full` and `make faults` try all.
"""

from __future__ import annotations

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "deterministic")
_PART = 3
_FEWEST = 5


def examples(whole: int) -> int:
    """Return how many of `whole` examples this run tries."""
    return whole if PROFILE != "deterministic" else min(whole, max(whole // _PART, _FEWEST))
