"""Others with the same due load: started, given so much time, and read from the log of what they called."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.cluster_parts.instance import now_us
from benchmarks.cluster_parts.trial import ROOT, SECOND, Load, Result, spread_of

LEAD: Final = 2 * SECOND
PAUSE_SECONDS: Final = 0.1
READY_SECONDS: Final = 120.0


def run_celery(broker: str, load: Load, folder: Path, limit: float) -> Result:
    """Celery beat and one worker; at most `limit` seconds after the last instant."""
    offsets, log = folder / "offsets", folder / "log"
    offsets.write_bytes(array("q", load.offsets).tobytes())
    command = [sys.executable, "-m", "benchmarks.cluster_parts.celery_party"]
    parts = [
        subprocess.Popen(  # noqa: S603 - this repository's own module
            [*command, part, broker, str(log), str(offsets)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for part in ("worker", "beat")
    ]
    try:
        _wait_until_up(parts)
        due = now_us() + LEAD
        _tell(parts[-1], str(due))
        until = time.monotonic() + (due + load.offsets[-1] - now_us()) / SECOND + limit
        while time.monotonic() < until and len(_fires(log)) < len(load.offsets):
            time.sleep(PAUSE_SECONDS)
    finally:
        for part in parts:
            part.terminate()
        for part in parts:
            try:
                part.wait(10)
            except subprocess.TimeoutExpired:
                part.kill()
                part.wait()
    return _judged(_fires(log), load, due)


def _wait_until_up(parts: Sequence[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + READY_SECONDS
    for part in parts:
        assert part.stdout is not None
        said = b""
        while b"up\n" not in said:
            ready, _, _ = select.select([part.stdout], [], [], max(until - time.monotonic(), 0))
            more = os.read(part.stdout.fileno(), 4096) if ready else b""
            if not more:
                raise RuntimeError(f"a part of Celery was not up within {READY_SECONDS:g} s, or ended: {said!r:.500}")
            said += more


def _tell(part: subprocess.Popen[bytes], line: str) -> None:
    assert part.stdin is not None
    part.stdin.write(f"{line}\n".encode())
    part.stdin.flush()


def _fires(log: Path) -> list[tuple[int, int]]:
    numbers = array("q", log.read_bytes()) if log.exists() else array("q")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _judged(fires: list[tuple[int, int]], load: Load, due: int) -> Result:
    late = [at - due - load.offsets[number] for number, at in fires]
    seconds = (max((at for _, at in fires), default=due) - due) / SECOND
    return {
        "fires": len(fires),
        "of": len(load.offsets),
        "exactly_once": len(Counter(number for number, _ in fires)) == len(fires) == len(load.offsets),
        "rate": round(len(fires) / seconds, 1) if seconds > 0 else 0.0,
        "seconds": round(seconds, 3),
        "late": spread_of(late),
    }
