"""The records of the engine and its decisions. Pure: the same rows and the same instant give the same decision."""
