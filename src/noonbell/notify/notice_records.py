"""Channels, rules and notices: as they are stored, as they travel, and as `Channels` and `Rules` answer with them.

Channels and rules are documents of a store. A notice is what happened, as facts; it becomes words only when it is sent,
because each kind of channel has its own way to write them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from noonbell.actions.message import CHANNEL_PREFIX
from noonbell.core.instants import moment
from noonbell.core.records import Document

CHANNEL: Final = "channel"
RULE: Final = "rule"
STATE: Final = "channel_state"
ENGINE_REPORT: Final = "engine_report"  # one for each lane whose engines were reported as gone
TARGET_PREFIX: Final = CHANNEL_PREFIX

Event = Literal["failed", "succeeded", "recovered", "late", "missed", "slow", "undelivered", "no_engine"]
EVENTS: Final[tuple[Event, ...]] = (
    "failed", "succeeded", "recovered", "late", "missed", "slow", "undelivered", "no_engine",
)  # fmt: skip
Subject = Literal["schedule", "monitor", "lane"]

DEFAULT_PER_MINUTE: Final = 20
DEFAULT_WINDOW_US: Final = 900_000_000


def state_id(channel_id: str, lane: str) -> str:
    """The id of what is counted for a channel in a lane; no channel's id has a slash."""
    return f"{channel_id}/{lane}"


# --- as they are stored -----------------------------------------------------------------------------------------------


class ChannelBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A channel. A secret value of `config` is replaced by a reference to a secret; `sealed` names our own ones."""

    name: str
    kind: str
    config: dict[str, Any]
    enabled: bool = True
    most_per_minute: int | None = DEFAULT_PER_MINUTE
    sealed: tuple[str, ...] = ()


class RuleBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule: which channels get which events. Without schedule, monitor and tag it is for everything of its team."""

    name: str
    on: tuple[Event, ...]
    channels: tuple[str, ...]
    schedule_id: str | None = None
    monitor_id: str | None = None
    tag: str | None = None
    late_us: int | None = None
    slow_us: int | None = None
    window_us: int = DEFAULT_WINDOW_US
    title: str | None = None
    text: str | None = None
    enabled: bool = True


class Notice(msgspec.Struct, frozen=True, omit_defaults=True, tag="notice"):
    """An event on its way through the outbox. The id is the same for every repeat of a delivery."""

    id: str
    event: Event
    at: int
    subject: Subject
    subject_id: str
    name: str
    team: str
    tags: tuple[str, ...] = ()
    run_id: str | None = None
    scheduled_for: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    attempts: int | None = None
    error: str | None = None
    changed: bool = False  # the subject was in another state before: no window holds it back
    count: int = 1  # how many occurrences were missed
    until_at: int | None = None  # the last of them
    late_us: int | None = None
    link: str | None = None
    window_us: int = DEFAULT_WINDOW_US
    title: str | None = None
    text: str | None = None


class Flush(msgspec.Struct, frozen=True, tag="flush"):
    """A request to a channel to send what it held back. It carries nothing: the summary has what is held by then."""

    id: str


# --- as they are shown ------------------------------------------------------------------------------------------------


class Channel(msgspec.Struct, frozen=True):
    """A channel. A secret value of `config` shows as `***`, or as the reference that was written."""

    channel_id: str
    name: str
    team: str
    kind: str
    config: dict[str, Any]
    enabled: bool
    most_per_minute: int | None
    created_at: datetime
    updated_at: datetime
    version: int


class Rule(msgspec.Struct, frozen=True):
    rule_id: str
    name: str
    team: str
    on: tuple[Event, ...]
    channels: tuple[str, ...]
    schedule_id: str | None
    monitor_id: str | None
    tag: str | None
    late_seconds: float | None
    slow_seconds: float | None
    window_seconds: float
    title: str | None
    text: str | None
    enabled: bool
    created_at: datetime
    updated_at: datetime
    version: int


class ChannelPage(msgspec.Struct, frozen=True):
    """Some channels, by id; `next_cursor` asks for what comes after, and is None at the end."""

    items: list[Channel]
    next_cursor: str | None = None


class RulePage(msgspec.Struct, frozen=True):
    items: list[Rule]
    next_cursor: str | None = None


_channel_body = msgspec.json.Decoder(ChannelBody).decode
_rule_body = msgspec.json.Decoder(RuleBody).decode


def channel_body(document: Document) -> ChannelBody:
    return _channel_body(document.body)


def rule_body(document: Document) -> RuleBody:
    return _rule_body(document.body)


def rule_record(document: Document) -> Rule:
    body = rule_body(document)
    return Rule(
        rule_id=document.id,
        name=body.name,
        team=document.team,
        on=body.on,
        channels=body.channels,
        schedule_id=body.schedule_id,
        monitor_id=body.monitor_id,
        tag=body.tag,
        late_seconds=_seconds(body.late_us),
        slow_seconds=_seconds(body.slow_us),
        window_seconds=body.window_us / 1_000_000,
        title=body.title,
        text=body.text,
        enabled=body.enabled,
        created_at=moment(document.created_at),
        updated_at=moment(document.updated_at),
        version=document.version,
    )


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1_000_000
