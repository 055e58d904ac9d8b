"""Applies rules to facts and returns the notices. Nothing here does I/O; equal rules and facts give equal notices.

The engine asks twice: for a turn, before the claim is committed (missed and late occurrences, runs that end with the
claim), and for the end of an attempt, before it is settled. What is answered goes into the outbox in the very same
transaction. A failure that is tried again does not count yet: only the last attempt of a run is reported.

Where no rule is for a schedule this costs one look into an empty dict.

`failed` and `recovered` need to know whether the run before had failed: a notice of a state that is new (`changed`) is
never held back. The row of a schedule records when an attempt has failed last, which is enough for the first attempt of
a run that is alone. For a run that needed several, the answer is kept from its first attempt on; after a restart in
between, and beside other live runs, it is read from the ledger at the claim (`unsure`, `learn`). Runs of one schedule
that overlap in this engine see each other's ends; those of two engines see them from the next claim on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from noonbell.actions.http.http_jobs import team_of
from noonbell.core.ids import parse_run_id, run_id
from noonbell.core.records import (
    Document,
    Kind,
    LiveRun,
    OutboxMessage,
    Run,
    Settlement,
    Span,
    Start,
    StoredSchedule,
    Turn,
)
from noonbell.core.turns import definition_of
from noonbell.notify.notice_records import (
    TARGET_PREFIX,
    ChannelBody,
    Event,
    Notice,
    RuleBody,
    Subject,
    channel_body,
    rule_body,
)
from noonbell.timing.jitter import jitter_us

_MOST_REMEMBERED: Final = 100_000
_encode = msgspec.json.Encoder().encode


class RuleBook(NamedTuple):
    """All rules that can produce a notice, by what they are for."""

    of_subject: Mapping[tuple[Subject, str, str], tuple[RuleBody, ...]] = {}  # subject, team, id
    of_tag: Mapping[tuple[str, str], tuple[RuleBody, ...]] = {}  # team, tag
    of_team: Mapping[str, tuple[RuleBody, ...]] = {}
    channels: Mapping[str, ChannelBody] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.of_subject or self.of_tag or self.of_team)

    def rules_for(self, subject: Subject, team: str, subject_id: str, tags: Iterable[str]) -> list[RuleBody]:
        found = [*self.of_subject.get((subject, team, subject_id), ())]
        if self.of_tag:
            for tag in tags:
                found.extend(self.of_tag.get((team, tag), ()))
        found.extend(self.of_team.get(team, ()))
        return found


EMPTY: Final = RuleBook()


def make_book(rules: Iterable[Document], channels: Iterable[Document]) -> RuleBook:
    """The book of what is stored; a rule reaches channels of its own team only."""
    open_channels: dict[str, ChannelBody] = {}
    teams: dict[str, str] = {}
    for document in channels:
        body = channel_body(document)
        if body.enabled:
            open_channels[document.id], teams[document.id] = body, document.team
    of_subject: dict[tuple[Subject, str, str], tuple[RuleBody, ...]] = {}
    of_tag: dict[tuple[str, str], tuple[RuleBody, ...]] = {}
    of_team: dict[str, tuple[RuleBody, ...]] = {}
    for document in rules:
        rule, team = rule_body(document), document.team
        reached = tuple(one for one in rule.channels if teams.get(one) == team)
        if not rule.enabled or not reached:
            continue
        rule = msgspec.structs.replace(rule, channels=reached)
        if rule.schedule_id is not None:
            key: tuple[Subject, str, str] = ("schedule", team, rule.schedule_id)
            of_subject[key] = (*of_subject.get(key, ()), rule)
        elif rule.monitor_id is not None:
            key = ("monitor", team, rule.monitor_id)
            of_subject[key] = (*of_subject.get(key, ()), rule)
        elif rule.tag is not None:
            of_tag[team, rule.tag] = (*of_tag.get((team, rule.tag), ()), rule)
        else:
            of_team[team] = (*of_team.get(team, ()), rule)
    return RuleBook(of_subject, of_tag, of_team, open_channels)


class Notifier:
    """Turns what happens in one lane into messages for channels, by the rules of its `book`."""

    def __init__(self, lane: str, *, public_url: str | None = None) -> None:
        self.book = EMPTY
        self._lane = lane
        self._public_url = None if public_url is None else public_url.rstrip("/")
        # whether the run before had failed, and as of when: of runs that have begun
        self._before: dict[tuple[int, str, int], tuple[int, bool]] = {}
        self._ended: dict[int, tuple[int, bool]] = {}  # by sid: when a run ended here last, and whether it failed

    # --- a turn ---------------------------------------------------------------------------------------------------

    @property
    def silent(self) -> bool:
        """Return whether no rule exists, so that nothing has to be looked up. Read at the end of every run."""
        book = self.book
        return not (book.of_subject or book.of_tag or book.of_team)

    def of_turn(self, stored: StoredSchedule, turn: Turn, starts: Sequence[Start], now: int) -> list[OutboxMessage]:
        """Return the notices of a schedule's turn, before it is committed.

        `starts` are all that begin with it, those that end with the claim included.
        """
        rules = self._rules_for(stored)
        if not rules:
            return []
        messages: list[OutboxMessage] = []
        for span in turn.spans:
            if span.verdict == "missed":
                messages += self._send(rules, self._missed(stored, span, now))
        for live in turn.preempted:
            _, was_failing = self._before.get((live.sid, live.kind, live.run_for), (0, False))
            error = "a new occurrence came before it was tried again"
            messages += self._failed(rules, stored, live, now, error, was_failing=was_failing)
        for start in starts:
            messages += self._late(rules, stored, start, now)
        for run in turn.finished:
            messages += self._succeeded(rules, stored, run, was_failing=_failing(stored))
        return messages

    def of_cut(self, stored: StoredSchedule, live: LiveRun, at: int, error: str) -> list[OutboxMessage]:
        """Return the notices for a run that was executing when its engine died, and is not repeated."""
        rules = self._rules_for(stored)
        was_failing = live.attempt == 1 and _failing(stored)
        return self._failed(rules, stored, live, at, error, was_failing=was_failing) if rules else []

    def in_lane(self, lane: str) -> Notifier:
        """The same rules for another lane: its engine delivers."""
        if lane == self._lane:
            return self
        other = Notifier(lane, public_url=self._public_url)
        other.book = self.book
        return other

    def _failed(
        self,
        rules: Sequence[RuleBody],
        stored: StoredSchedule,
        live: LiveRun,
        at: int,
        error: str,
        *,
        was_failing: bool,
    ) -> list[OutboxMessage]:
        notice = self._notice(stored, "failed", at, live.kind, live.run_for)
        notice = msgspec.structs.replace(
            notice, started_at=live.attempt_at, attempts=live.attempt, error=error, ended_at=at, changed=not was_failing
        )
        return self._send(rules, notice)

    def _missed(self, stored: StoredSchedule, span: Span, now: int) -> Notice:
        message_id = f"{stored.schedule_id}:missed:{span.to_at}"
        return Notice(
            f"{message_id}/missed", "missed", now, "schedule", stored.schedule_id, stored.columns.name, team_of(stored),
            definition_of(stored.columns.definition).tags, scheduled_for=span.from_at, until_at=span.to_at,
            count=span.n, error=span.reason or None, link=self._schedule_link(stored.schedule_id),
        )  # fmt: skip

    def _late(self, rules: Sequence[RuleBody], stored: StoredSchedule, start: Start, now: int) -> list[OutboxMessage]:
        if start.kind != "scheduled" or start.attempt != 1:
            return []
        limit = definition_of(stored.columns.definition).jitter_us
        meant_for = start.run_for + (jitter_us(stored.schedule_id, start.run_for, limit) if limit else 0)
        late_us = now - meant_for
        claim_late_us = late_us - start.waited_us  # at the claim; with no wait it is decided now
        chosen = [
            rule
            for rule in rules
            if rule.late_us is not None
            and late_us > rule.late_us
            and not (start.waited_us and claim_late_us > rule.late_us)
        ]
        if not chosen:
            return []
        notice = self._notice(stored, "late", now, start.kind, start.run_for)
        return self._send(chosen, msgspec.structs.replace(notice, late_us=late_us, started_at=now))

    def _succeeded(
        self, rules: Sequence[RuleBody], stored: StoredSchedule, run: Run, *, was_failing: bool
    ) -> list[OutboxMessage]:
        notice = self._notice(stored, "succeeded", run.ended_at, run.kind, run.run_for)
        notice = msgspec.structs.replace(
            notice, started_at=run.started_at, ended_at=run.ended_at, attempts=run.attempts, changed=was_failing
        )
        messages = self._send(rules, notice)
        if not was_failing:
            return messages
        notice = msgspec.structs.replace(notice, id=f"{notice.run_id}/recovered", event="recovered")
        recovered = self._send(rules, notice)
        # a channel that gets the recovery does not need the success
        targets = {message.target for message in recovered}
        return recovered + [message for message in messages if message.target not in targets]

    # --- an end ---------------------------------------------------------------------------------------------------

    def of_end(self, stored: StoredSchedule, settlement: Settlement) -> list[OutboxMessage]:
        """Return the notices for the end of an attempt, before it is settled."""
        rules = self._rules_for(stored)
        if not rules:
            return []
        start, at = settlement.start, settlement.ended_at
        key = (start.sid, start.kind, start.run_for)
        # late by the wait for a slot, which was not known at the claim
        late = self._late(rules, stored, start, start.started_at) if start.waited_us else []
        if settlement.wake_at is not None:
            if key not in self._before and start.attempt == 1:
                self._remember(key, _known_at(stored), failing=_failing(stored))
            return late
        was_failing = self._was_failing(stored, key, first=start.attempt == 1)
        if len(self._ended) >= _MOST_REMEMBERED:
            self._ended.clear()
        self._ended[start.sid] = (at, settlement.outcome != "succeeded")
        run = Run(start.sid, start.run_for, start.kind, settlement.outcome, start.attempt, start.started_at, at,
                  settlement.owner, start.epoch)  # fmt: skip
        messages = late
        if settlement.outcome == "succeeded":
            messages += self._succeeded(rules, stored, run, was_failing=was_failing)
        else:
            notice = self._notice(stored, "failed", at, start.kind, start.run_for)
            notice = msgspec.structs.replace(
                notice, started_at=start.started_at, ended_at=at, attempts=start.attempt, error=settlement.error,
                changed=not was_failing,
            )  # fmt: skip
            messages += self._send(rules, notice)
        slow = [rule for rule in rules if rule.slow_us is not None and at - start.started_at > rule.slow_us]
        if slow:
            notice = self._notice(stored, "slow", at, start.kind, start.run_for)
            notice = msgspec.structs.replace(notice, started_at=start.started_at, ended_at=at, attempts=start.attempt)
            messages += self._send(slow, notice)
        return messages

    def unsure(self, stored: StoredSchedule, start: Start) -> bool:
        """Return whether a rule needs the outcome of the run before, and it is not known here."""
        if (start.sid, start.kind, start.run_for) in self._before:
            return False
        beside = any((live.kind, live.run_for) != (start.kind, start.run_for) for live in stored.lives)
        if start.attempt == 1 and not beside:
            return False
        return any("recovered" in rule.on or "failed" in rule.on for rule in self._rules_for(stored))

    def learn(self, start: Start, *, failing: bool) -> None:
        """The run before this one had failed, or not."""
        self._remember((start.sid, start.kind, start.run_for), start.started_at, failing=failing)

    def _was_failing(self, stored: StoredSchedule, key: tuple[int, str, int], *, first: bool) -> bool:
        known_at, failing = self._before.pop(key, (_known_at(stored), first and _failing(stored)))
        ended_at, failed = self._ended.get(stored.sid, (-1, False))
        return failed if ended_at > known_at else failing

    def _remember(self, key: tuple[int, str, int], known_at: int, *, failing: bool) -> None:
        if len(self._before) >= _MOST_REMEMBERED:
            self._before.clear()  # runs that never came to an end here; what is needed is asked for
        self._before[key] = (known_at, failing)

    # --- dead letters ---------------------------------------------------------------------------------------------

    def of_dead_message(
        self, stored: StoredSchedule, message: OutboxMessage, attempts: int, error: str, at: int
    ) -> list[OutboxMessage]:
        """Return the notices for a run's message that became a dead letter."""
        rules = self._rules_for(stored)
        if not rules:
            return []
        run = parse_run_id(message.message_id)
        if run is None:
            return []  # a message that no run has sent
        notice = self._notice(stored, "undelivered", at, run.kind, run.run_for)
        text = f'The message to "{message.target}" was not delivered: {error}'
        return self._send(rules, msgspec.structs.replace(notice, attempts=attempts, error=text))

    def of_dead_notice(
        self, notice: Notice, message: OutboxMessage, attempts: int, error: str, at: int
    ) -> list[OutboxMessage]:
        """Return the notices to other channels for an undelivered notice; none if that one was about a dead letter."""
        if notice.event == "undelivered":
            return []
        rules, target = self.book.rules_for(notice.subject, notice.team, notice.subject_id, notice.tags), message.target
        text = f'The notice "{notice.event}" to {target} was not delivered: {error}'
        dead = msgspec.structs.replace(
            notice, id=f"{notice.id}:{target}/undelivered", event="undelivered", at=at, attempts=attempts, error=text,
            changed=False,
        )  # fmt: skip
        return [sent for sent in self._send(rules, dead) if sent.target != target]

    # --- a monitor ------------------------------------------------------------------------------------------------

    def of_flip(self, notice: Notice, after: Event | None = None) -> list[OutboxMessage]:
        """Return the notices for the change of a monitor; `after` is the notice before it, if it ends that state.

        The end of a lateness is news only to those that were notified of the lateness.
        """
        rules = self.book.rules_for("monitor", notice.team, notice.subject_id, notice.tags)
        if after == "late" and notice.event == "recovered":
            rules = [rule for rule in rules if "late" in rule.on]
        return self._send(rules, msgspec.structs.replace(notice, link=self._monitor_link(notice.subject_id)))

    # --- in common ------------------------------------------------------------------------------------------------

    def _rules_for(self, stored: StoredSchedule) -> list[RuleBody]:
        book = self.book
        if book.is_empty:
            return []
        tags = definition_of(stored.columns.definition).tags if book.of_tag else ()
        return book.rules_for("schedule", team_of(stored), stored.schedule_id, tags)

    def _notice(self, stored: StoredSchedule, event: Event, at: int, kind: Kind, run_for: int) -> Notice:
        run = run_id(stored.schedule_id, kind, run_for)
        return Notice(
            f"{run}/{event}", event, at, "schedule", stored.schedule_id, stored.columns.name, team_of(stored),
            definition_of(stored.columns.definition).tags, run_id=run, scheduled_for=run_for, link=self._run_link(run),
        )  # fmt: skip

    def _send(self, rules: Sequence[RuleBody], notice: Notice) -> list[OutboxMessage]:
        """A message for each channel that a rule names; where several rules name it, the first counts."""
        chosen: dict[str, RuleBody] = {}
        for rule in rules:
            if notice.event in rule.on:
                for channel_id in rule.channels:
                    chosen.setdefault(channel_id, rule)
        message_id = notice.id.rpartition("/")[0]
        messages = []
        for channel_id, rule in chosen.items():
            worded = msgspec.structs.replace(notice, window_us=rule.window_us, title=rule.title, text=rule.text)
            messages.append(
                message_for(channel_id, self._lane, message_id, _encode(worded).decode(), notice.at, team=notice.team)
            )
        return messages

    def _run_link(self, run: str) -> str | None:
        return None if self._public_url is None else f"{self._public_url}/runs/{quote(run, safe='')}"

    def _schedule_link(self, schedule_id: str) -> str | None:
        return None if self._public_url is None else f"{self._public_url}/schedules/{quote(schedule_id, safe='')}"

    def _monitor_link(self, monitor_id: str) -> str | None:
        return None if self._public_url is None else f"{self._public_url}/monitors/{quote(monitor_id, safe='')}"


def message_for(channel_id: str, lane: str, message_id: str, body: str, at: int, *, team: str) -> OutboxMessage:
    """A message in the stream of a channel."""
    return OutboxMessage(stream_of(channel_id, lane), lane, message_id, TARGET_PREFIX + channel_id, body, at, team)


def stream_of(channel_id: str, lane: str) -> int:
    """The number of a channel's stream in a lane. It is negative: schedules have the others."""
    digest = hashlib.blake2b(f"{lane}\n{channel_id}".encode(), digest_size=8).digest()
    return -1 - (int.from_bytes(digest) >> 2)


def _failing(stored: StoredSchedule) -> bool:
    """Return whether the latest run to end had failed."""
    failed, succeeded = stored.last_failure_at, stored.last_success_at
    return failed is not None and (succeeded is None or failed > succeeded)


def _known_at(stored: StoredSchedule) -> int:
    """When the last attempt ended that the row of a schedule knows of."""
    return max(stored.last_failure_at or 0, stored.last_success_at or 0)
