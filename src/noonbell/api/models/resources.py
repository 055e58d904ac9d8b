"""Quiet hours, the audit, dead letters, secrets, channels, rules and monitors."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from noonbell.api.models.base import (
    Lasting,
    ListOf,
    PageOf,
    RequestBody,
    ResponseBody,
    Seconds,
    ShallowObject,
    ShortName,
    Tag,
    left_out,
)
from noonbell.api.models.schedules import Dst, ScheduleId, Spec, Zone

DocumentId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
MonitorId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")]
SecretName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]

# --- quiet hours ------------------------------------------------------------------------------------------------------


class WindowRequest(RequestBody):
    """A quiet time of the day, on weekdays (0 is Sunday) or on single dates."""

    model_config = ConfigDict(populate_by_name=False)

    weekdays: ListOf[Annotated[int, Field(ge=0, le=6)]] = left_out()
    dates: ListOf[str] = left_out(examples=[["2026-12-25"]])
    from_: str = Field(alias="from", examples=["22:00"])
    to: str = Field(examples=["06:00"])
    timezone: Zone = Field(examples=["Europe/Kyiv"])
    valid_from: str = left_out(examples=["2026-01-01"])
    valid_to: str = left_out(examples=["2026-12-31"])


class QuietHoursChanges(RequestBody):
    name: ShortName = left_out()
    windows: ListOf[WindowRequest] = left_out(max_length=100)


class QuietHoursRequest(RequestBody):
    """Quiet hours that schedules may refer to."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "policy_id": "nights",
                    "name": "nights",
                    "windows": [
                        {"weekdays": [1, 2, 3, 4, 5], "from": "22:00", "to": "06:00", "timezone": "Europe/Kyiv"}
                    ],
                }
            ]
        }
    )

    policy_id: ScheduleId = left_out()
    name: ShortName
    windows: ListOf[WindowRequest] = Field(min_length=1, max_length=100)


class QuietHoursResponse(ResponseBody):
    policy_id: str
    name: str
    windows: list[dict[str, Any]]
    created_at: datetime
    updated_at: datetime
    warnings: list[str] = Field(default=[], description="Of what was just created or changed.")


QuietHoursPage = PageOf[QuietHoursResponse]

# --- audit ------------------------------------------------------------------------------------------------------------


class AuditResponse(ResponseBody):
    audit_id: int
    at: datetime
    event: str
    subject: str
    actor: str
    detail: ShallowObject


AuditPage = PageOf[AuditResponse]

# --- dead letters -----------------------------------------------------------------------------------------------------


class NumbersRequest(RequestBody):
    """Dead letters by their numbers."""

    numbers: ListOf[Annotated[int, Field(ge=0, lt=1 << 63)]] = Field(min_length=1, max_length=1_000)


class DeadLetterResponse(ResponseBody):
    """A message that could not be delivered. `event` is its CloudEvent."""

    number: int
    message_id: str
    schedule_id: str
    target: str
    event: ShallowObject
    created_at: datetime
    died_at: datetime
    attempts: int
    error: str


LetterPage = PageOf[DeadLetterResponse]


class Found(ResponseBody):
    found: int


# --- secrets ----------------------------------------------------------------------------------------------------------


class SecretRequest(RequestBody):
    """The value of a secret. It can be written and never read back."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"value": "a-token-of-some-service"}]})

    value: str = Field(min_length=1, max_length=16_384, json_schema_extra={"writeOnly": True})


class SecretResponse(ResponseBody):
    """A secret without its value."""

    name: str
    version: int
    key_version: int
    created_at: datetime
    updated_at: datetime


SecretPage = PageOf[SecretResponse]


class RotationResponse(ResponseBody):
    rewrapped: int
    unreadable: int


class OverlapRequest(RequestBody):
    """The time for which the old key keeps signing beside the new one."""

    overlap_seconds: float = Field(default=86_400, ge=0, le=30 * 86_400, allow_inf_nan=False)


class SigningKeyResponse(ResponseBody):
    """A key that signs requests; the receiver needs it to verify them. `until` is when it stops signing."""

    key: str
    created_at: datetime | None = None
    until: datetime | None = None


class SigningKeysResponse(ResponseBody):
    items: list[SigningKeyResponse]


# --- channels and rules -----------------------------------------------------------------------------------------------

ChannelKind = Literal["email", "slack", "discord", "telegram", "webhook", "apprise"]
RuleEvent = Literal["failed", "succeeded", "recovered", "late", "missed", "slow", "undelivered", "no_engine"]


class ChannelChanges(RequestBody):
    """The fields of a channel to change. `config` replaces the whole one, including its secrets."""

    name: ShortName = left_out()
    config: dict[str, Any] = left_out()
    most_per_minute: Annotated[int, Field(ge=1, le=10_000)] | None = left_out(description="null: no limit.")
    enabled: bool = left_out()


class ChannelRequest(ChannelChanges):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"channel_id": "ops", "name": "ops", "kind": "webhook", "config": {"url": "https://example.com/hook"}}
            ]
        }
    )

    channel_id: DocumentId = left_out()
    name: ShortName
    kind: ChannelKind
    config: dict[str, Any]


class ChannelResponse(ResponseBody):
    """A channel. A secret value of `config` is shown as ***, or as the reference to a secret that was written."""

    channel_id: str
    name: str
    kind: str
    config: ShallowObject
    enabled: bool
    most_per_minute: int | None
    created_at: datetime
    updated_at: datetime
    version: int


ChannelPage = PageOf[ChannelResponse]


class Tested(ResponseBody):
    """The result of a test notice: the receiver's answer, or why it was not delivered."""

    delivered: bool
    answer: str


class RuleChanges(RequestBody):
    name: ShortName = left_out()
    on: ListOf[RuleEvent] = left_out(min_length=1)
    channels: ListOf[DocumentId] = left_out(min_length=1, max_length=20)
    schedule_id: ScheduleId | None = left_out()
    monitor_id: MonitorId | None = left_out()
    tag: Tag | None = left_out()
    late_seconds: Seconds | None = left_out(description="The threshold of the event late.")
    slow_seconds: Seconds | None = left_out(description="The threshold of the event slow.")
    window_seconds: float = left_out(ge=0, le=7 * 86_400, allow_inf_nan=False)
    title: str | None = left_out(max_length=200)
    text: str | None = left_out(max_length=4_000)
    enabled: bool = left_out()


class RuleRequest(RuleChanges):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "nightly", "on": ["failed", "recovered"], "channels": ["ops"]}]}
    )

    rule_id: DocumentId = left_out()
    name: ShortName
    on: ListOf[RuleEvent] = Field(min_length=1)
    channels: ListOf[DocumentId] = Field(min_length=1, max_length=20)


class RuleResponse(ResponseBody):
    rule_id: str
    name: str
    on: list[str]
    channels: list[str]
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


RulePage = PageOf[RuleResponse]

# --- monitors ---------------------------------------------------------------------------------------------------------


class MonitorChanges(RequestBody):
    name: ShortName = left_out()
    type: Literal["cron", "interval"] = left_out()
    spec: Spec = left_out()
    timezone: Zone = left_out()
    dst: Dst = left_out()
    grace_seconds: float = left_out(ge=0, le=366 * 86_400, allow_inf_nan=False)
    max_run_seconds: Annotated[float, Field(ge=1, le=366 * 86_400, allow_inf_nan=False)] | None = left_out()
    tags: ListOf[Annotated[str, Field(min_length=1, max_length=200)]] = left_out(max_length=100)


class MonitorRequest(MonitorChanges):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "backup", "type": "cron", "spec": "30 2 * * *", "grace_seconds": 1800}],
        }
    )

    monitor_id: MonitorId = left_out()
    name: ShortName
    type: Literal["cron", "interval"]
    spec: Spec


class OpenRunResponse(ResponseBody):
    run: str
    since: datetime


class MonitorResponse(ResponseBody):
    """A heartbeat monitor. The path of its pings is a credential for pinging, and for nothing else."""

    monitor_id: str
    name: str
    type: str
    spec: str
    timezone: str
    dst: str
    grace_seconds: float
    max_run_seconds: float | None
    tags: list[str]
    status: str
    since: datetime
    reason: str
    running: list[OpenRunResponse]
    due_at: datetime | None
    down_at: datetime | None
    last_ping_at: datetime | None
    last_kind: str | None
    pings: int
    flips: int
    ping_path: str | None = Field(description="The path of its pings; null for a key that may only read.")
    created_at: datetime
    updated_at: datetime
    version: int
    understood: str | None = None


MonitorPage = PageOf[MonitorResponse]


class PingResponse(ResponseBody):
    number: int
    at: datetime
    kind: str
    exit_code: int | None
    run: str
    ran_for_seconds: Lasting | None = Field(default=None, validation_alias="ran_for")
    body: str
    cut: bool


class PingList(ResponseBody):
    items: list[PingResponse]


class FlipResponse(ResponseBody):
    number: int
    at: datetime
    was: str
    status: str
    reason: str
    lasted_seconds: Lasting = Field(validation_alias="lasted")


class FlipList(ResponseBody):
    items: list[FlipResponse]
