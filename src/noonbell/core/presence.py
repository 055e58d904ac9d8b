"""Whether the engine of a lane is up, and since when: its holder beside what its lifecycle says. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonbell.core.records import LifecycleEvent

# A lane is held, and its lifecycle kept, by this and its name.
LANE: Final = "lane:"


def up_since(events: Sequence[LifecycleEvent], holder: str | None) -> int | None:
    """Since when the holder of a name has been up; None where it is not, or has not said so yet.

    An engine that stops is up until its last run has ended. One that has just taken the name of a dead one names
    itself in its hold, so the last start on record is not taken for its own.
    """
    for event in reversed(events):
        if event.event == "init-ok":
            return event.at if holder is not None and event.instance in holder else None
        if event.event != "stop-start":
            break
    return None
