"""Bars and goals: what was wanted, what was measured, and whether it was met.

A missed bar makes the exit status 1. A goal is an absolute rate that depends on the machine: it is shown, and no more.
"""

from __future__ import annotations

import os
from typing import Any


class Judged:
    """The bars and goals of one run, in the order in which they were judged."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.skipped: list[str] = []

    def at_least(self, what: str, value: float, least: float, *, goal: bool = False) -> None:
        self._add(f"{what}: at least {least:,g}", value, met=value >= least, goal=goal)

    def at_most(self, what: str, value: float, most: float, *, goal: bool = False) -> None:
        self._add(f"{what}: at most {most:,g}", value, met=value <= most, goal=goal)

    def skip(self, what: str) -> None:
        """Keep why a bar could not be judged."""
        self.skipped.append(what)

    def _add(self, what: str, value: float, *, met: bool, goal: bool) -> None:
        self.rows.append({"bar": what, "value": round(value, 3), "met": met, "goal": goal})

    def show(self) -> None:
        print()
        for row in self.rows:
            word = "pass" if row["met"] else "missed" if row["goal"] else "MISSED"
            print(f"{word:8}{'goal' if row['goal'] else 'bar':6}{row['bar']}; measured {row['value']:,g}")
        for what in self.skipped:
            print(f"{'-':8}{'skip':6}{what}")

    @property
    def status(self) -> int:
        """The exit status."""
        return 0 if all(row["met"] or row["goal"] for row in self.rows) else 1


def print_load(when: str) -> None:
    """Print the load of the machine: rates that were measured beside other work are no result."""
    print(f"load average at the {when}: {', '.join(f'{load:.2f}' for load in os.getloadavg())}", flush=True)
