"""When a scheduler was up, or any of the engines that share a lane, from the stored lifecycle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from noonbell.core.records import LifecycleEvent


class Absence(NamedTuple):
    """A stretch in which no instance was at work. `until` None: it lasts.

    After a crash `since` is the last moment at which somebody is known to have been up: the start of the instance that
    crashed, or the end of another beside it. When exactly it died nobody wrote down. `silent`: not even the crash is
    written down yet, as whoever finds it does that.
    """

    since: int
    until: int | None
    crashed: bool
    instance: str
    silent: bool = False


class _Presence:
    """Who is there, while the events pass by."""

    def __init__(self) -> None:
        self.found: list[Absence] = []
        self.here: dict[str, LifecycleEvent] = {}  # by instance: its last event, its start or the start of its stop
        self.ended: Absence | None = None
        self._known_up = 0  # when somebody was up for certain

    def take(self, event: LifecycleEvent) -> None:
        if event.event == "init-ok":
            if self.ended is not None:
                self.found.append(self.ended._replace(until=event.at))
            self.ended = None
            self.here[event.instance] = event
            self._known_up = max(self._known_up, event.at)
        elif event.event == "stop-start":
            self.here[event.instance] = event
        else:
            self._leaves(event)

    def _leaves(self, event: LifecycleEvent) -> None:
        crashed = event.event == "crash"
        if not crashed:
            self._known_up = max(self._known_up, event.at)
        known = event.instance in self.here
        self.here.pop(event.instance, None)
        if not self.here:
            since = self._known_up if crashed and known else event.at
            self.ended = Absence(since, None, crashed=crashed, instance=event.instance)

    @property
    def lasting(self) -> Absence | None:
        """The absence at the end: all have left, or are about to."""
        if self.ended is not None or not self.here:
            return self.ended
        if any(event.event == "init-ok" for event in self.here.values()):
            return None
        last = max(self.here.values(), key=lambda event: event.at)
        return Absence(last.at, None, crashed=False, instance=last.instance)


def _read(events: Sequence[LifecycleEvent]) -> _Presence:
    presence = _Presence()
    for event in events:
        presence.take(event)
    return presence


def absences(events: Sequence[LifecycleEvent]) -> list[Absence]:
    """The stretches between the end of the last instance and the start of the next, oldest first."""
    presence = _read(events)
    return [*presence.found, *([] if presence.lasting is None else [presence.lasting])]


def absence_at(events: Sequence[LifecycleEvent], at: int) -> Absence | None:
    """The absence that holds `at`, where the lifecycle knows of one."""
    holding = [gone for gone in absences(events) if gone.since <= at and (gone.until is None or at < gone.until)]
    return holding[-1] if holding else None


def absence_now(events: Sequence[LifecycleEvent], at: int, *, held: bool) -> Absence | None:
    """The absence that holds now, where the lifecycle knows of one, or where nobody is there any more."""
    found = absence_at(events, at)
    if found is not None or held or not events:
        return found
    left = _read(events).here
    last = max(left.values(), key=lambda event: event.at) if left else events[-1]
    return Absence(last.at, None, crashed=True, instance=last.instance, silent=True)
