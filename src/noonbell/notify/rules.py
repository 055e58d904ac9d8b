"""`Rules`: which channels get which events.

    rules = Rules(store, clock)
    await rules.create(name="nightly", on=["failed", "recovered", "late"], channels=["ops"], tag="nightly",
                       late_seconds=300)

A rule is for one schedule, one monitor, everything with a tag, or, with none of these, everything of its team.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from typing import Any, Final, TypedDict, Unpack, cast

import msgspec

from noonbell.actions.secrets.secret_records import DEFAULT_TEAM
from noonbell.core.records import AuditEvent, Document, DocumentWrite
from noonbell.errors import DocumentConflictError, RuleInvalidError, RuleNotFoundError
from noonbell.notify.channels import ID, NEW
from noonbell.notify.notice_records import (
    CHANNEL,
    EVENTS,
    RULE,
    Event,
    Rule,
    RuleBody,
    RulePage,
    rule_body,
    rule_record,
)
from noonbell.notify.notice_text import FIELDS, unknown_field
from noonbell.ports import Clock, DocumentFilter, Ledger, ScheduleFilter
from noonbell.store.documents import removals

_LARGEST_PAGE: Final = 1_000
_MOST_CHANNELS: Final = 20
_LONGEST_WINDOW: Final = 7 * 86_400
_LONGEST_THRESHOLD: Final = 30 * 86_400
_LONGEST_TITLE: Final = 200
_LONGEST_TEXT: Final = 4_000
_MONITOR_EVENTS: Final = ("failed", "recovered", "late")
_encode = msgspec.json.Encoder().encode


class RuleChanges(TypedDict, total=False):
    """The fields of a rule. `on` are events; `late_seconds` and `slow_seconds` belong to `late` and `slow`."""

    name: str
    on: Sequence[str]
    channels: Sequence[str]
    schedule_id: str | None
    monitor_id: str | None
    tag: str | None
    late_seconds: float | None
    slow_seconds: float | None
    window_seconds: float
    title: str | None
    text: str | None
    enabled: bool


class RuleFields(RuleChanges, total=False):
    team: str
    rule_id: str


class Rules:
    """The rules of one store. `on_change` is called after each change: an engine in this process looks again."""

    def __init__(
        self, store: Ledger, clock: Clock, *, actor: str = "api", on_change: Callable[[], None] | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._actor = actor
        self._on_change = on_change

    def acting(self, actor: str) -> Rules:
        """Return the same rules in the name of another actor, whom the audit log then names."""
        view = copy(self)
        vars(view).update(_actor=actor)
        return view

    async def create(self, **fields: Unpack[RuleFields]) -> Rule:
        """A new rule. It counts at once in this process, and within seconds in others."""
        given = dict(fields)
        team = _text("team", given.pop("team", DEFAULT_TEAM), 200)
        chosen = given.pop("rule_id", None)
        rule_id = uuid.uuid4().hex[:12] if chosen is None else _id(chosen)
        body = read_rule(given, None)
        await self._require_known(body, team)
        try:
            return rule_record(await self._put(rule_id, team, body, expected=0, event="created"))
        except DocumentConflictError as error:
            raise RuleInvalidError("rule_id", rule_id, "is taken; choose another") from error

    async def get(self, rule_id: str) -> Rule:
        return rule_record(await self._find(rule_id))

    async def list(self, *, team: str | None = None, cursor: str | None = None, limit: int = 100) -> RulePage:
        """A page of rules by id, of one team or of all."""
        if type(limit) is not int or not 1 <= limit <= _LARGEST_PAGE:
            raise RuleInvalidError("limit", limit, f"must be a whole number from 1 to {_LARGEST_PAGE}")
        found = await self._store.documents.find(DocumentFilter(RULE, team=team), cursor or "", limit + 1)
        more = found[limit - 1].id if len(found) > limit else None
        return RulePage([rule_record(document) for document in found[:limit]], more)

    async def update(self, rule_id: str, *, version: int | None = None, **fields: Unpack[RuleChanges]) -> Rule:
        """Change fields. Raises DocumentConflictError if it was changed concurrently, or is not of `version`."""
        before = await self._find(rule_id)
        if version is not None and before.version != version:
            raise DocumentConflictError(RULE, rule_id, before.version)
        body = read_rule(dict(fields), rule_body(before))
        await self._require_known(body, before.team)
        return rule_record(await self._put(rule_id, before.team, body, expected=before.version, event="updated"))

    async def delete(self, rule_id: str, *, version: int | None = None) -> None:
        """Raises DocumentConflictError where it is not of `version`."""
        team = (await self._find(rule_id)).team
        audit = AuditEvent(self._clock.now(), "rule.deleted", rule_id, self._actor, "{}", team)
        if not await self._store.documents.write(audits=[audit], removed=removals(RULE, [rule_id], version)):
            raise RuleNotFoundError(rule_id)
        self._changed()

    async def _find(self, rule_id: str) -> Document:
        found = await self._store.documents.find(DocumentFilter(RULE, [rule_id]))
        if not found:
            raise RuleNotFoundError(rule_id)
        return found[0]

    async def _require_known(self, body: RuleBody, team: str) -> None:
        """Refuse a rule that can never produce a notice."""
        found = await self._store.documents.find(DocumentFilter(CHANNEL, body.channels))
        known = {document.id for document in found if document.team == team}
        for channel_id in body.channels:
            if channel_id not in known:
                reason = f'is not a channel of the team "{team}"; create it first'
                raise RuleInvalidError("channels", channel_id, reason)
        if body.schedule_id is not None:
            schedules = await self._store.schedules.find(ScheduleFilter(schedule_ids=[body.schedule_id]))
            if team not in [one.team for one in schedules]:
                reason = f'is not a schedule of the team "{team}"; create it first'
                raise RuleInvalidError("schedule_id", body.schedule_id, reason)
        if body.monitor_id is not None:
            monitors = await self._store.documents.find(DocumentFilter("monitor", [body.monitor_id]))
            if team not in [one.team for one in monitors]:
                reason = f'is not a monitor of the team "{team}"; create it first'
                raise RuleInvalidError("monitor_id", body.monitor_id, reason)

    async def _put(self, rule_id: str, team: str, body: RuleBody, *, expected: int, event: str) -> Document:
        now, written = self._clock.now(), _encode(body).decode()
        audit = AuditEvent(now, f"rule.{event}", rule_id, self._actor, written, team)
        write = DocumentWrite(RULE, rule_id, team, written, expected)
        (document,) = await self._store.documents.write([write], now, [audit])
        self._changed()
        return document

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()


# --- checking ---------------------------------------------------------------------------------------------------------


def read_rule(fields: Mapping[str, Any], before: RuleBody | None) -> RuleBody:
    """A rule as a person writes it, or changes of one, in the form that is stored."""
    known = tuple(RuleChanges.__annotations__)
    for key in fields:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise RuleInvalidError(key, fields[key], f"is not known; {hint}")
    readers: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "name": ("name", lambda value: _text("name", value, 200)),
        "on": ("on", _events),
        "channels": ("channels", _channels),
        "schedule_id": ("schedule_id", lambda value: _maybe("schedule_id", value)),
        "monitor_id": ("monitor_id", lambda value: _maybe("monitor_id", value)),
        "tag": ("tag", lambda value: _maybe("tag", value)),
        "late_seconds": ("late_us", lambda value: _threshold("late_seconds", value)),
        "slow_seconds": ("slow_us", lambda value: _threshold("slow_seconds", value)),
        "window_seconds": ("window_us", _window),
        "title": ("title", lambda value: _template("title", value, _LONGEST_TITLE)),
        "text": ("text", lambda value: _template("text", value, _LONGEST_TEXT)),
        "enabled": ("enabled", _flag),
    }
    read = {stored: reader(fields[key]) for key, (stored, reader) in readers.items() if key in fields}
    if before is None:
        for field in ("name", "on", "channels"):
            if field not in read:
                raise RuleInvalidError(field, None, "is missing")
        body = RuleBody(**read)
    else:
        body = msgspec.structs.replace(before, **read)
    _check_together(body)
    return body


def _check_together(body: RuleBody) -> None:
    chosen = {"schedule_id": body.schedule_id, "monitor_id": body.monitor_id, "tag": body.tag}
    given = [field for field, value in chosen.items() if value is not None]
    if len(given) > 1:
        raise RuleInvalidError(given[1], chosen[given[1]], f"cannot be combined with {given[0]}; make two rules")
    for event, field, value in (("late", "late_seconds", body.late_us), ("slow", "slow_seconds", body.slow_us)):
        if value is not None and event not in body.on:
            raise RuleInvalidError(field, value / 1_000_000, f'is for the event {event}, which is not among "on"')
        if value is None and event in body.on and not (event == "late" and body.monitor_id is not None):
            raise RuleInvalidError(field, None, f"is missing; it says from when on a run is {event}, such as 300")
    if given and "no_engine" in body.on:
        reason = f"is about a whole lane and cannot be combined with {given[0]}; make a separate rule"
        raise RuleInvalidError("on", "no_engine", reason)
    if body.monitor_id is not None:
        for event in body.on:
            if event not in _MONITOR_EVENTS:
                right = f"is not an event of a monitor; {', '.join(_MONITOR_EVENTS)} are"
                raise RuleInvalidError("on", event, right)


def _events(value: object) -> tuple[Event, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise RuleInvalidError("on", value, f"must be a list with some of {', '.join(EVENTS)}")
    for event in value:
        if event not in EVENTS:
            raise RuleInvalidError("on", event, f"is not an event; {', '.join(EVENTS)} are")
    return cast("tuple[Event, ...]", tuple(dict.fromkeys(value)))


def _channels(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not 1 <= len(value) <= _MOST_CHANNELS:
        raise RuleInvalidError("channels", value, f"must be a list of 1 to {_MOST_CHANNELS} ids of channels")
    return tuple(dict.fromkeys(_text("channels", one, 64) for one in value))


def _id(value: object) -> str:
    if not isinstance(value, str) or not ID.fullmatch(value):
        right = "must be 1 to 64 letters, digits, dots, hyphens and underscores, beginning with a letter or a digit"
        raise RuleInvalidError("rule_id", value, right)
    if value == NEW:
        raise RuleInvalidError("rule_id", value, "would mean something else in an address; choose another")
    return value


def _text(field: str, value: object, longest: int) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > longest or not value.isprintable():
        raise RuleInvalidError(field, value, f"must be a text of 1 to {longest} characters in one line, not blank")
    return value


def _maybe(field: str, value: object) -> str | None:
    return None if value is None else _text(field, value, 500)


def _threshold(field: str, value: object) -> int | None:
    return None if value is None else _microseconds(field, value, _LONGEST_THRESHOLD)


def _window(value: object) -> int:
    return _microseconds("window_seconds", value, _LONGEST_WINDOW)


def _microseconds(field: str, value: object, longest: int) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= longest:
        raise RuleInvalidError(field, value, f"must be a number of seconds from 0 to {longest}")
    return round(value * 1_000_000)


def _template(field: str, value: object, longest: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > longest:
        raise RuleInvalidError(field, value, f"must be a text of 1 to {longest} characters, not blank")
    unknown = unknown_field(value)
    if unknown is not None:
        known = ", ".join(f"{{{{{name}}}}}" for name in FIELDS)
        raise RuleInvalidError(field, value, f"has the field {unknown!r}, which is not known; {known} are")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise RuleInvalidError("enabled", value, "must be true or false")
    return value
