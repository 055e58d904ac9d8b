"""The log that the targets write: what ran, where and when. It is the only evidence of it that the checker takes.

One file for a cluster, opened for appending by every worker: a line is one write, so lines of different processes never
mix. Nothing is synced to disk, since no machine is switched off here. Beside the workers the run itself writes what it
has done to them: kills, pauses and cuts.

| `m` | meaning | by |
| --- | --- | --- |
| `up`, `gone` | the worker `w` (process `p`) has begun; it has stopped as it was told to | worker |
| `start`, `end` | attempt `a` of run `r` (schedule `i`, for `f`) has begun; has ended, well or not (`ok`) | worker |
| `stall` | the worker stood still from `t0` to `t`: nobody meant it to | worker |
| `killed` | the worker is dead from `t` on; between `t0` and `t` it may still begin something | run, poison |
| `pause` | the worker was stopped, or away from its database, from `t0` to `t`; all workers where `w` is None | run |
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.faults.cluster.clock import real_us

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Evidence:
    """The file, to be written to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, mark: str, worker: int | None, **facts: Any) -> None:
        os.write(self._file, _encode({"m": mark, "w": worker, "t": real_us(), **facts}) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines, in the order in which they were written."""
    with path.open("rb") as lines:
        for line in lines:
            yield _decode(line)
