"""Run ids: one format for every schedule and every place that names a run.

    SCHEDULE_ID:KIND:RUN_FOR          backup:scheduled:1763164800000000

RUN_FOR is the occurrence, or the request of a manual run, in microseconds since 1970. The id is the same for every
attempt of a run, so receivers use it as the idempotency key. A schedule id may itself contain colons.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, get_args

from noonbell.core.records import Kind

KINDS: Final[tuple[str, ...]] = get_args(Kind)
_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_LEAST: Final = -(1 << 63)  # the numbers that a store can hold
_MOST: Final = (1 << 63) - 1


class RunId(NamedTuple):
    """The parts of a run id."""

    schedule_id: str
    kind: Kind
    run_for: int


def run_id(schedule_id: str, kind: Kind, run_for: int) -> str:
    """Return the id of a run: the same for each of its attempts, and different from that of any other run."""
    return f"{schedule_id}:{kind}:{run_for}"


def parse_run_id(text: str) -> RunId | None:
    """Return the parts of a run id; None if `text` is not what `run_id` writes."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3:
        return None
    schedule_id, kind, number = parts
    if kind not in KINDS or not _NUMBER.fullmatch(number) or not _LEAST <= int(number) <= _MOST:
        return None
    return RunId(schedule_id, "manual" if kind == "manual" else "scheduled", int(number))


def schedule_of(run: str) -> str:
    """Return the schedule id in a run id."""
    return run.rsplit(":", 2)[0]
