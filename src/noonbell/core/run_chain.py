"""The chain of a schedule's ended runs. Pure.

A schedule names the run that ended last, each run the one that ended before it. Old runs are pruned from the far end of
the chain, where nothing has to be mended: the last run that is kept names one that is gone, and there the history ends.
Only where runs were pruned in between, because what ended before them has to stay, is the chain closed again.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from noonbell.core.records import Kind, Run


class RunKey(NamedTuple):
    """The key of a run within its schedule."""

    run_for: int
    kind: Kind


class Mended(NamedTuple):
    """The rows to write to close a chain: its first run, if that is another now, and the runs that changed."""

    first: RunKey | None
    runs: list[Run]


def key_of(run: Run) -> RunKey:
    return RunKey(run.run_for, run.kind)


def mended(chain: Sequence[Run], gone: Container[RunKey]) -> Mended:
    """Close a chain, newest first, from which runs go."""
    kept = [run for run in chain if key_of(run) not in gone]
    first = key_of(kept[0]) if kept and key_of(chain[0]) in gone else None
    changed = [
        replace(run, prev_for=before.run_for, prev_manual=before.kind == "manual")
        for run, before in pairwise(kept)
        if (run.prev_for, bool(run.prev_manual)) != (before.run_for, before.kind == "manual")
    ]
    return Mended(first, changed)
