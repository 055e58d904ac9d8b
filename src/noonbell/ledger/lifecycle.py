"""The stored lifecycle of the engines of a lane: when none was up, and whether its events can follow each other.

A declared scheduler has one engine at a time: a start, its stop or crash, then the next start. Other lanes have any
number of engines, each of which starts once and ends once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from noonbell.core.presence import LANE
from noonbell.core.records import LifecycleEvent
from noonbell.ledger.ledger_rows import is_instant, iso

# event -> the events that may come before it; None: nothing comes before it
_BEFORE: Final[dict[str, tuple[str | None, ...]]] = {
    "init-ok": (None, "stop-end", "crash"),
    "stop-start": ("init-ok",),
    "stop-end": ("stop-start",),
    "crash": ("init-ok", "stop-start"),
}


class Absence(NamedTuple):
    """A stretch in which no instance was up. `until` None: it lasts.

    After a crash `since` is the last moment at which an instance is known to have been up: the start of the one that
    crashed, or the end of another beside it. The moment of the crash is not recorded. `silent`: the crash itself is not
    recorded yet either; the next engine that starts records it.
    """

    since: int
    until: int | None
    crashed: bool
    instance: str
    silent: bool = False


class _Presence:
    """The instances that are up, as the events are read in order."""

    def __init__(self) -> None:
        self.found: list[Absence] = []
        self.up: dict[str, LifecycleEvent] = {}  # by instance: its last event, its start or the start of its stop
        self.ended: Absence | None = None
        self._known_up = 0  # when an instance was up for certain

    def take(self, event: LifecycleEvent) -> None:
        if event.event == "init-ok":
            if self.ended is not None:
                self.found.append(self.ended._replace(until=event.at))
            self.ended = None
            self.up[event.instance] = event
            self._known_up = max(self._known_up, event.at)
        elif event.event == "stop-start":
            self.up[event.instance] = event
        else:
            self._ends(event)

    def _ends(self, event: LifecycleEvent) -> None:
        crashed = event.event == "crash"
        if not crashed:
            self._known_up = max(self._known_up, event.at)
        known = event.instance in self.up
        self.up.pop(event.instance, None)
        if not self.up:
            since = self._known_up if crashed and known else event.at
            self.ended = Absence(since, None, crashed=crashed, instance=event.instance)

    @property
    def lasting(self) -> Absence | None:
        """The absence at the end: all instances have ended, or are stopping."""
        if self.ended is not None or not self.up:
            return self.ended
        if any(event.event == "init-ok" for event in self.up.values()):
            return None
        last = max(self.up.values(), key=lambda event: event.at)
        return Absence(last.at, None, crashed=False, instance=last.instance)


def _read(events: Sequence[LifecycleEvent]) -> _Presence:
    presence = _Presence()
    for event in events:
        presence.take(event)
    return presence


def absences(events: Sequence[LifecycleEvent]) -> list[Absence]:
    """Return the stretches between the end of the last instance and the start of the next, oldest first."""
    presence = _read(events)
    return [*presence.found, *([] if presence.lasting is None else [presence.lasting])]


def absence_at(events: Sequence[LifecycleEvent], at: int) -> Absence | None:
    """Return the absence that `at` lies in; None if the lifecycle has none."""
    holding = [gone for gone in absences(events) if gone.since <= at and (gone.until is None or at < gone.until)]
    return holding[-1] if holding else None


def absence_now(events: Sequence[LifecycleEvent], at: int, *, held: bool) -> Absence | None:
    """Return the absence that lasts at `at`; `held`: an instance holds its lock or lease, so it is up."""
    found = absence_at(events, at)
    if found is not None or held or not events:
        return found
    left = _read(events).up
    last = max(left.values(), key=lambda event: event.at) if left else events[-1]
    return Absence(last.at, None, crashed=True, instance=last.instance, silent=True)


# --- verify -----------------------------------------------------------------------------------------------------------


class OwnerReporter(Protocol):
    """Takes findings about an owner. A remark is not a problem."""

    def __call__(self, managed_by: object, text: str, at: object, *, remark: bool) -> None: ...


class LifecycleCheck:
    """Takes lifecycle rows in order and reports those that cannot follow the one before."""

    def __init__(self, report: OwnerReporter) -> None:
        self._report = report
        self._last: dict[object, tuple[str, object]] = {}  # by owner; of a lane, by owner and instance

    def take(self, row: tuple[Any, ...]) -> None:
        _, managed_by, at, instance, event, _ = row
        if event not in _BEFORE or not is_instant(at):
            self._report(managed_by, f"its lifecycle holds {event!r} at {iso(at)}, which cannot be", at, remark=False)
            return
        shared = isinstance(managed_by, str) and managed_by.startswith(LANE)
        whose = (managed_by, instance) if shared else managed_by
        before, before_at = self._last.get(whose, (None, None))
        if before not in _BEFORE[event]:
            came = "as the first event" if before is None else f"after {before} ({iso(before_at)})"
            # a scheduler whose store fails for a moment stops all the same, so the first half of a stop may be lost
            lost = (before, event) == ("init-ok", "stop-end")
            text = f"its lifecycle has {event} at {iso(at)} by {instance} {came}"
            self._report(managed_by, text, at, remark=lost)
        self._last[whose] = (event, at)

    def last(self, managed_by: object) -> str | None:
        """Return the owner's latest event."""
        return self._last.get(managed_by, (None, None))[0]
