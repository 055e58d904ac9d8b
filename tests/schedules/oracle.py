"""Brute force: what becomes of each occurrence of a durable schedule, by walking time in half minutes.

It shares nothing with the package: expressions are matched by hand, quiet hours are looked up hour by hour, and every
occurrence is held as a number in a list. Runs take no time. All instants are multiples of half a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

HALF = 30
GRACE = 60


@dataclass
class Oracle:
    """A schedule by its meaning. Instants are whole seconds."""

    kind: str  # every N minutes by the clock, daily at an hour, interval of N seconds, once at an instant
    number: int
    catch_up: str
    cap: int
    now: int
    quiet: tuple[int, int] | None = None  # from hour to hour, UTC, every day
    zone: str = "UTC"
    enabled: bool = True
    up: bool = False
    polls: list[int] = field(default_factory=list)
    cursor: int = 0
    anchor: int = 0
    verdicts: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cursor = self.anchor = self.now

    # --- what happens -------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: int, *, asleep: bool = False) -> None:
        for _ in range(seconds // HALF):
            self.now += HALF
            if not asleep:
                self.look()
        if asleep:
            self.look()

    def start(self) -> None:
        self.up = True
        self.look()

    def stop(self) -> None:
        self.up = False

    def close(self) -> None:
        """Before an edit: all that has come is decided."""
        if self.enabled:
            self.decide(closing=True)
        self.cursor = self.now

    def look(self) -> None:
        if self.up:
            self.polls.append(self.now)
            if self.enabled:
                self.decide(closing=False)

    # --- how it is judged ---------------------------------------------------------------------------------------------

    def is_missed(self, t: int) -> bool:
        """No poll between the occurrence and the grace after it, not even one now."""
        return not any(t <= poll < t + GRACE for poll in (*self.polls[-3000:], self.now))

    def decide(self, *, closing: bool) -> None:
        came = [t for t in self.comings() if closing or not self.is_quiet_until_after_now(t)]
        unpolled = [t for t in came if self.is_missed(t)]
        long_ago = max(unpolled, default=0)
        if self.catch_up != "skip":  # the other policies make up for what was late before it, too
            unpolled = [t for t in came if t <= long_ago]
        capped = self.catch_up == "run_all_capped" and any(not self.is_quiet(t) for t in unpolled)
        if capped and self.kind == "interval" and not closing:
            # the chain goes on from the last of the runs that catch up, and what came after the missed ones with it
            came = [t for t in came if t <= long_ago]
        open_ones = [t for t in came if not self.is_quiet(t)]
        missed = [t for t in open_ones if t in unpolled]
        late = [t for t in open_ones if t not in missed]
        waits = bool(missed) and (capped or (self.catch_up == "run_once" and not late))
        if waits and self.is_quiet(self.now) and not closing:
            return
        self.give([t for t in came if t not in open_ones], "skipped quiet hours")
        fired = missed[: self.cap] if capped else []
        if capped:
            self.give(missed[self.cap :], "missed cap")
        elif self.catch_up == "run_once":
            late = missed + late
        else:
            self.give(missed, "missed not polled in time")
        self.give(late[:-1], "coalesced")
        self.give([*fired, *late[-1:]], "fired")
        self.cursor = max([self.cursor, *came])
        if (fired or late) and self.kind == "interval":
            rest = [t for t in self.comings() if t not in self.verdicts]
            self.give([t for t in rest if self.is_quiet(t)], "skipped quiet hours")
            self.give([t for t in rest if not self.is_quiet(t)], "coalesced")
        if fired or late:
            self.anchor = self.now
            if self.kind == "interval":
                self.cursor = self.now
        if self.kind == "once" and self.number <= self.cursor:
            self.enabled = False

    def give(self, times: list[int], verdict: str) -> None:
        for t in times:
            assert t not in self.verdicts
            self.verdicts[t] = verdict

    def skipped_already(self) -> dict[int, str]:
        """What has come in quiet hours and has no verdict yet: it reads as skipped all the same."""
        came = self.comings() if self.enabled else []
        return {t: "skipped quiet hours" for t in came if self.is_quiet(t) and t not in self.verdicts}

    # --- when it comes ------------------------------------------------------------------------------------------------

    def comings(self) -> list[int]:
        if self.kind == "once":
            return [self.number] if self.cursor < self.number <= self.now else []
        if self.kind == "interval":
            found = range(self.anchor + self.number, self.now + 1, self.number)
            return [t for t in found if t > self.cursor]
        first = self.cursor - self.cursor % 60 + 60
        return [t for t in range(first, self.now + 1, 60) if self.matches(t)]

    def matches(self, t: int) -> bool:
        shown = datetime.fromtimestamp(t, ZoneInfo(self.zone))
        if self.kind == "daily":
            return shown.hour == self.number and shown.minute == 15
        return shown.minute % self.number == 0

    def is_quiet(self, t: int) -> bool:
        if self.quiet is None:
            return False
        begin, end = self.quiet
        hour = datetime.fromtimestamp(t, UTC).hour
        return begin <= hour < end if begin < end else hour >= begin or hour < end

    def is_quiet_until_after_now(self, t: int) -> bool:
        """Whether the quiet that `t` lies in still goes on."""
        if not self.is_quiet(t):
            return False
        at = t
        while at <= self.now:
            if not self.is_quiet(at):
                return False
            at = at - at % 3600 + 3600
        return self.is_quiet(self.now)
