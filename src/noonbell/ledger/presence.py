"""When a scheduler was up, from its stored lifecycle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from noonbell.core.records import LifecycleEvent


class Absence(NamedTuple):
    """A stretch in which no instance was at work. `until` None: it lasts.

    After a crash `since` is the start of the instance that crashed: when exactly it died nobody wrote down. `silent`:
    not even the crash is written down yet, as the next start does it.
    """

    since: int
    until: int | None
    crashed: bool
    instance: str
    silent: bool = False


def absences(events: Sequence[LifecycleEvent]) -> list[Absence]:
    """The stretches between the end of an instance and the start of the next, oldest first."""
    found: list[Absence] = []
    up_since: LifecycleEvent | None = None
    ended: Absence | None = None
    for event in events:
        if event.event == "init-ok":
            if ended is not None:
                found.append(ended._replace(until=event.at))
            ended, up_since = None, event
        elif event.event == "crash":
            since = up_since.at if up_since is not None else event.at
            ended = Absence(since, None, crashed=True, instance=event.instance)
        else:
            ended = Absence(event.at, None, crashed=False, instance=event.instance)
    if ended is not None:
        found.append(ended)
    return found


def absence_at(events: Sequence[LifecycleEvent], at: int) -> Absence | None:
    """The absence that holds `at`, where the lifecycle knows of one."""
    holding = [gone for gone in absences(events) if gone.since <= at and (gone.until is None or at < gone.until)]
    return holding[-1] if holding else None


def absence_now(events: Sequence[LifecycleEvent], at: int, *, held: bool) -> Absence | None:
    """The absence that holds now, where the lifecycle knows of one, or where nobody holds the name any more."""
    found = absence_at(events, at)
    if found is not None or held or not events:
        return found
    return Absence(events[-1].at, None, crashed=True, instance=events[-1].instance, silent=True)
