"""Schedules and their occurrences, previews, runs and statistics."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from noonbell.api.models.base import (
    PLAIN,
    JsonValue,
    Lasting,
    ListOf,
    Name,
    PageOf,
    RequestBody,
    ResponseBody,
    Seconds,
    ShallowJson,
    ShallowObject,
    Tag,
    left_out,
)
from noonbell.schedules.pace import FIRST

Type = Literal["cron", "interval", "one_shot"]
CatchUp = Literal["skip", "run_once", "run_all_capped"]
Overlap = Literal["coalesce", "skip", "allow"]
Dst = Literal["literal", "once"]
Outcome = Literal["succeeded", "failed", "abandoned", "unknown"]

MOST_AT_ONCE: Final = FIRST  # of one batch, so that all are created or none
_ID: Final = Field(min_length=1, max_length=500, pattern=r"^[^\u0000-\u001f\u007f/]+$")
ScheduleId = Annotated[str, _ID]
Text = Annotated[str, Field(min_length=1, max_length=1_000, pattern=PLAIN)]
Zone = Annotated[str, Field(min_length=1, max_length=100, pattern=PLAIN)]
Time = Annotated[str, Field(min_length=1, max_length=100, pattern=PLAIN)]
Spec = Text | int


class RetryRequest(RequestBody):
    """The retry policy: how often a failing run is attempted, and the delay before each further attempt."""

    attempts: int | None = Field(default=1, ge=1, description="All attempts counted; null: without end.")
    delay_seconds: Seconds = 5
    strategy: Literal["exponential", "linear", "fixed"] = "exponential"
    max_delay_seconds: Seconds | None = None
    jitter: float = Field(default=0, ge=0, le=1)


class ActionRequest(RequestBody):
    """The action of a run. The further fields depend on the kind: see docs/actions.md."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        json_schema_extra={"examples": [{"kind": "http", "url": "https://example.com/hook", "method": "POST"}]},
    )

    kind: Literal["callback", "command", "http", "message"]


class ScheduleChanges(RequestBody):
    """The fields of a schedule to change; a field that is left out keeps its value."""

    name: Name = left_out(description="Unique among the schedules of one owner.")
    type: Type = left_out(description="Cannot be changed; a schedule of another type is another one.")
    spec: Spec = left_out(
        description="Five cron fields, seconds or 15m, or an ISO 8601 time.", examples=["0 9 * * 1-5"]
    )
    timezone: Zone = left_out(description="An IANA zone.", examples=["Europe/Kyiv"])
    enabled: bool = left_out()
    catch_up_policy: CatchUp = left_out(description="How missed occurrences are handled: no engine polled in time.")
    catch_up_cap: int = left_out(ge=1, le=1_000)
    overlap: Overlap = left_out(description="How occurrences during a run are handled.")
    retry: RetryRequest = left_out()
    retry_vs_new: Literal["finish", "preempt"] = left_out()
    dst: Dst = left_out()
    start_at: Time | None = left_out(
        description="ISO 8601 or English (1 march 2027, tomorrow at 9); without an offset in the zone of the schedule."
    )
    end_at: Time | None = left_out(description="As start_at.")
    jitter_seconds: float = left_out(ge=0, le=86_400, allow_inf_nan=False)
    at_most_once: bool = left_out()
    quiet_hours_policy_id: Name | None = left_out()
    payload: JsonValue = left_out(description="JSON, given to the action.")
    tags: ListOf[Tag] = left_out(max_length=100)
    action: ActionRequest = left_out()


class ScheduleCreate(ScheduleChanges):
    """A new schedule: `type` and `spec`, or both as a `text` in English, and what a run does."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "report",
                    "text": "every weekday at 9am in Kyiv",
                    "action": {"kind": "http", "url": "https://example.com/report", "method": "POST"},
                },
                {
                    "name": "sync",
                    "type": "interval",
                    "spec": "900",
                    "action": {"kind": "http", "url": "https://example.com/sync", "method": "POST"},
                },
            ]
        }
    )

    schedule_id: ScheduleId = left_out(description="Cannot be changed; generated if left out.")
    text: Text = left_out(description="The time in English, instead of type and spec.", examples=["every 15 minutes"])
    action: ActionRequest


class ManySchedules(RequestBody):
    """Schedules that are created together."""

    schedules: ListOf[ScheduleCreate] = Field(min_length=1, max_length=MOST_AT_ONCE)


class ManyChanges(RequestBody):
    """The same changes of many schedules."""

    schedule_ids: ListOf[ScheduleId] = Field(min_length=1, max_length=MOST_AT_ONCE)
    changes: ScheduleChanges


# --- answers ----------------------------------------------------------------------------------------------------------


class RetryResponse(ResponseBody):
    attempts: int | None
    delay_seconds: float
    strategy: str
    max_delay_seconds: float | None
    jitter: float


class ScheduleResponse(ResponseBody):
    """A schedule. `understood` is the interpretation of a `text` in English or cron."""

    schedule_id: str
    name: str
    team: str
    enabled: bool
    type: Type
    spec: str
    description: str | None = Field(default=None, description="The spec in English.")
    next_run_at: datetime | None
    last_run_at: datetime | None
    timezone: str
    quiet_hours_policy_id: str | None
    catch_up_policy: str
    payload: ShallowJson
    created_at: datetime
    updated_at: datetime
    catch_up_cap: int
    overlap: str
    retry: RetryResponse
    retry_vs_new: str
    dst: str
    start_at: datetime | None
    end_at: datetime | None
    jitter_seconds: float
    at_most_once: bool
    tags: list[str]
    action: ShallowObject
    managed_by: str
    editable: bool = Field(default=True, description="False: declared by a program, which alone can change it.")
    lane: str | None
    epoch: int
    running: int
    last_success_at: datetime | None
    last_failure_at: datetime | None
    understood: str | None = None
    warnings: list[str] = Field(
        default=[],
        description="Of what was just created or changed: reasons why runs may not start, an unknown target, a "
        "one-shot in quiet hours.",
    )


class CreatedSchedules(ResponseBody):
    schedule_ids: list[str]
    warnings: list[str] = Field(
        default=[],
        description="As with one schedule; each kind of warning once, with a count and the names of a few schedules.",
    )


class Changed(ResponseBody):
    changed: int


class TriggerRequest(RequestBody):
    """The options of a manual run."""

    queue: bool = Field(default=False, description="If a run is in progress: start after it, instead of a 409.")
    retry: bool = Field(default=True, description="false: attempt it once, whatever the schedule's retry policy.")


class Triggered(ResponseBody):
    """The run that was started; GET /runs/{run_id} returns its state."""

    run_id: str
    warnings: list[str] = Field(default=[], description="Why it may not start: no engine is up, for example")


class AttemptResponse(ResponseBody):
    attempt: int
    outcome: str
    cause: str
    started_at: datetime | None
    ended_at: datetime
    error: str | None
    detail: ShallowObject | None = None


class OccurrenceResponse(ResponseBody):
    """A nominal firing time and its verdict."""

    scheduled_for: datetime
    verdict: Literal["fired", "skipped", "missed", "coalesced", "pending"]
    reason: str
    state: str | None
    attempts: int
    started_at: datetime | None
    ended_at: datetime | None
    tried: list[AttemptResponse]


class UpcomingResponse(ResponseBody):
    scheduled_for: datetime
    starts_at: datetime
    quiet: bool


class UpcomingList(ResponseBody):
    items: list[UpcomingResponse]


class RunResponse(ResponseBody):
    """A run. `state` is its outcome, or its current state: queued, running, waiting."""

    run_id: str
    schedule_id: str
    name: str
    kind: Literal["scheduled", "manual"]
    scheduled_for: datetime
    state: str
    attempts: int
    started_at: datetime | None
    ended_at: datetime | None
    duration_seconds: Lasting | None = Field(default=None, validation_alias="duration")
    lateness_seconds: Lasting | None = Field(default=None, validation_alias="lateness")
    waited_seconds: float = Field(default=0.0, description="For an HTTP slot or a thread; part of the lateness.")


class WholeRun(RunResponse):
    """A run with its attempts and their details: the first 5 and the last 20, and how many were omitted between."""

    tried: list[AttemptResponse]
    attempts_omitted: int = 0


class SpreadResponse(ResponseBody):
    p50_seconds: Lasting = Field(validation_alias="p50")
    p95_seconds: Lasting = Field(validation_alias="p95")


class StreakResponse(ResponseBody):
    of: Literal["succeeded", "failed"]
    runs: int


class LastFailureResponse(ResponseBody):
    run_id: str
    outcome: str
    scheduled_for: datetime
    ended_at: datetime


class StatisticsResponse(ResponseBody):
    """Statistics over the latest runs of a schedule."""

    schedule_id: str
    runs: int
    succeeded: int
    failed: int
    abandoned: int
    unknown: int
    success_rate: float | None
    duration: SpreadResponse | None
    lateness: SpreadResponse | None
    streak: StreakResponse | None
    last_failure: LastFailureResponse | None
    since: datetime | None
    pruned: int
    all_runs: int
    all_succeeded: int


SchedulePage = PageOf[ScheduleResponse]
OccurrencePage = PageOf[OccurrenceResponse]
RunPage = PageOf[RunResponse]
