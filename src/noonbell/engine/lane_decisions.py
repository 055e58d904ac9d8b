"""The decisions of one claim of a lane: which schedules stay due as they are, and what becomes of the others.

`LaneDecisions.decide` is what the store calls for each schedule, inside the transaction of the claim. A schedule stays
due if the poll came too late to decide, if its plain function finds no thread, if this engine does not know its action
(`unknown_actions`), or if its run is on probation (`crash_probation`). A run that only sends a message ends with the
claim itself (`core.turns.finish`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from noonbell.core.presence import Polls
from noonbell.core.records import OutboxMessage, Settlement, Span, Start, StoredSchedule, Turn
from noonbell.core.turns import Looks, executes_alone, finish, quiet_zones, sends_message
from noonbell.engine.crash_probation import ProbationBatch, without
from noonbell.engine.unknown_actions import UnknownActions

logger = logging.getLogger("noonbell.engine")

_OUTDATED_PAUSE: Final = 60_000_000


class NotificationRules(Protocol):
    """Makes the notices of decisions and ends (see `noonbell.notify`), which are committed with their cause."""

    @property
    def silent(self) -> bool:
        """Return whether no rule exists, so that nothing has to be asked."""
        ...

    def of_turn(
        self, stored: StoredSchedule, turn: Turn, starts: Sequence[Start], now: int
    ) -> Sequence[OutboxMessage]: ...

    def of_end(self, stored: StoredSchedule, settlement: Settlement) -> Sequence[OutboxMessage]: ...

    def unsure(self, stored: StoredSchedule, start: Start) -> bool:
        """Return whether it has to `learn` if the run before had failed."""
        ...

    def learn(self, start: Start, *, failing: bool) -> None: ...


class LaneDecisions:
    """Decides about the schedules of one claim, and keeps what the claim has to know of it afterwards."""

    def __init__(
        self,
        owner: str,
        now: int,
        poll: Poll,
        *,
        outdated: Collection[str],
        threads: ThreadBudget,
        needs_thread: Callable[[StoredSchedule], bool],
        unknown_actions: UnknownActions,
        probation: ProbationBatch,
        message_of: Callable[[StoredSchedule, Start, int], OutboxMessage] | None,
        notices: NotificationRules | None,
    ) -> None:
        self.audits = 0
        self.noticed = False
        # by run: a store that begins a claim again asks for turns that it has been given before
        self.sent: dict[tuple[int, int], tuple[Start, str]] = {}
        self.spans: dict[int, tuple[str, Sequence[Span]]] = {}
        self.threads = threads
        self.probation = probation
        self._owner = owner
        self._now = now
        self._poll = poll
        self._looks = Looks(now, poll.gaps)
        self._outdated = outdated
        self._needs_thread = needs_thread
        self._unknown_actions = unknown_actions
        self._message_of = None if message_of is None else partial(_at, message_of, now)
        self._notices = notices
        self._traits: dict[str, _Traits] = {}
        unknown_actions.begin(now)

    @property
    def kept(self) -> int:
        """Return how many schedules were left due as they stand."""
        return self._poll.kept + self.threads.kept + self._unknown_actions.kept + self.probation.kept

    def decide(self, stored: StoredSchedule) -> Turn:
        traits, lives = self._traits_of(stored), stored.lives
        if (
            self._poll.is_late() or (traits.needs_thread and self.threads.defers(stored))
            or (self._unknown_actions.others_up and self._unknown_actions.defers(stored))
            or (lives and self.probation.defers(stored))
        ):  # fmt: skip
            return _as_it_stands(stored)
        if self._outdated and _is_outdated(stored, self._outdated):
            return _left_alone(stored, self._now + _OUTDATED_PAUSE)
        turn = _look(stored, self._looks, self.probation) if lives else self._looks.look(stored)
        starts = turn.starts
        if turn.audits:
            self.audits += len(turn.audits)
        if turn.spans or self.spans:
            self.spans[stored.sid] = (stored.columns.name, turn.spans)
        if starts and traits.needs_thread:
            self.threads.take(starts)
        if starts and traits.sends and self._message_of is not None:
            finish(turn, stored, self._now, self._owner, self._message_of)
            if turn.starts is not starts:
                _note_sent(self.sent, stored.columns.name, starts, turn.starts)
        if self._notices is not None:
            self.noticed |= _notice(self._notices, stored, turn, starts, self._now)
        return turn

    def _traits_of(self, stored: StoredSchedule) -> _Traits:
        definition = stored.columns.definition
        traits = self._traits.get(definition)
        if traits is None:
            traits = self._traits[definition] = _Traits(self._needs_thread(stored), sends_message(stored))
        return traits


class Poll:
    """One poll: the gaps that it decides by, and whether it came too late to decide.

    The store may have kept it waiting for a lock. Then it leaves everything as it is, and another poll decides by the
    time that it is by then. That one may wait for as long as the grace: a store that is always slow must not make it
    decide nothing.
    """

    def __init__(
        self, now: int, clock: Callable[[], int], polls: Polls, last_poll_at: int | None, longest_wait: int
    ) -> None:
        self.gaps = polls.at(now, last_poll_at)
        self.ended = self.gaps[-1] if self.gaps and self.gaps[-1] not in polls.gaps else None
        self.kept = 0
        self._latest = now + longest_wait
        self._clock = clock
        self._is_late: bool | None = None

    def is_late(self) -> bool:
        """Return whether the poll came too late: the same for all schedules, as of when the first one was locked."""
        if self._is_late is None:
            self._is_late = self._clock() >= self._latest
        self.kept += self._is_late
        return self._is_late


class _Traits(NamedTuple):
    """The properties of an action that a claim needs, shared by all schedules with the same definition."""

    needs_thread: bool
    sends: bool  # it sends a message, and does nothing else


class ThreadBudget:
    """The number of plain functions that a claim may still start, and of schedules left due for want of threads."""

    def __init__(self, left: int) -> None:
        self.met = False
        self._left = left
        self.kept = 0

    def defers(self, stored: StoredSchedule) -> bool:
        """Return whether a schedule whose action needs a thread finds none."""
        if self._left > 0 or executes_alone(stored):
            return False
        self.met = True
        self.kept += 1
        return True

    def take(self, starts: Sequence[Start]) -> None:
        self.met = True
        self._left -= len(starts)


def _is_outdated(stored: StoredSchedule, outdated: Collection[str]) -> bool:
    """Return whether its occurrences or its quiet hours hang on rules that this host does not have."""
    civil = stored.columns.type != "interval" and stored.columns.timezone in outdated
    return civil or not quiet_zones(stored.quiet).isdisjoint(outdated)


def _as_it_stands(stored: StoredSchedule) -> Turn:
    """Nothing is decided: it stays due."""
    return Turn(
        stored.sid, stored.cursor_at, stored.next_run_at, stored.enabled, stored.anchor_at, stored.last_run_for,
        stored.backlog_left, stored.backlog_until,
    )  # fmt: skip


def _left_alone(stored: StoredSchedule, until: int) -> Turn:
    """Nothing is decided: this host does not know the rules that the schedule goes by."""
    waiting = [replace(live, wake_at=until) for live in stored.lives if live.state != "running"]
    return Turn(
        stored.sid, stored.cursor_at, until if stored.enabled else None, stored.enabled, stored.anchor_at,
        stored.last_run_for, stored.backlog_left, stored.backlog_until, put_off=waiting,
    )  # fmt: skip


def _look(stored: StoredSchedule, looks: Looks, probation: ProbationBatch) -> Turn:
    held = probation.held_back(stored)
    if not held:
        return looks.look(stored)
    rest = without(stored, held)
    if isinstance(rest, Turn):
        return rest
    turn = looks.look(rest)
    turn.put_off.extend(held)
    return turn


def _notice(notices: NotificationRules, stored: StoredSchedule, turn: Turn, starts: Sequence[Start], now: int) -> bool:
    """Add the notices of a turn; a rule that cannot be applied must not hold up the schedule."""
    try:
        messages = notices.of_turn(stored, turn, starts, now)
    except Exception:
        logger.exception("notification rules failed, a decision gets no notices schedule=%r", stored.columns.name)
        return False
    if not messages:
        return False
    turn.messages = [*turn.messages, *messages]
    return True


def _note_sent(
    sent: dict[tuple[int, int], tuple[Start, str]], name: str, starts: Sequence[Start], left: Sequence[Start]
) -> None:
    """Note the starts that ended with the claim: those that are not `left` to run."""
    for start in starts:
        if start not in left:
            sent[start.sid, start.run_for] = (start, name)


def _at(
    message_of: Callable[[StoredSchedule, Start, int], OutboxMessage], now: int, stored: StoredSchedule, start: Start
) -> OutboxMessage:
    return message_of(stored, start, now)
