"""Previews, explanations, verification and plans."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field

from noonbell.api.models.base import RequestBody, ResponseBody, ShallowJson, left_out
from noonbell.api.models.schedules import Dst, Spec, Text, Type, Zone

# A larger one is for the command line on the machine of the store: reading it costs seconds of the processor.
LARGEST_FILE: Final = 256 * 1024


class PreviewRequest(RequestBody):
    """A schedule to preview: a `text` in English or cron, or a `type` and a `spec`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "every weekday at 9am in Kyiv", "count": 5}]},
    )

    text: Text = left_out(examples=["every weekday at 9am"])
    type: Type = left_out()
    spec: Spec = left_out()
    timezone: Zone = Field(default="UTC", description="An IANA zone, if the text names none.")
    dst: Dst = "literal"
    count: int = Field(default=5, ge=1, le=100)


class SurpriseResponse(ResponseBody):
    """A day of the coming year on which a clock change affects the schedule."""

    date: str
    kind: Literal["twice", "skipped", "moved", "remark"]
    times: list[str]
    sentence: str


class FireResponse(ResponseBody):
    at: datetime
    local: str = Field(description="The same instant in the zone of the schedule.")


class PreviewResponse(ResponseBody):
    """A preview of a schedule. `fields` can be sent to POST /schedules as they are."""

    type: Type
    spec: str
    timezone: str
    fields: dict[str, Any]
    description: str | None
    notes: list[str]
    next: list[FireResponse]
    surprises: list[SurpriseResponse]


class WhyResponse(ResponseBody):
    """The explanation of why a schedule did or did not run: a paragraph, and its facts."""

    text: str
    facts: dict[str, Any]


class ProblemFound(ResponseBody):
    kind: str
    text: str
    schedule: str | None
    at: datetime | None


class VerifyResponse(ResponseBody):
    """The extent of the check, and the problems found. `next_cursor` continues if schedules are left to check."""

    whole: bool
    schedules: int
    occurrences: int
    runs: int
    spans: int
    pruned_days: int
    problems: list[ProblemFound]
    more_problems: int
    remarks: list[str]
    start: datetime
    end: datetime
    next_cursor: str | None = None


class FileRequest(RequestBody):
    """A file of schedules as its text: see docs/files.md."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "format": "toml",
                    "text": 'name = "billing"\n[schedules.report]\ncron = "0 9 * * 1-5"\n'
                    'action = { kind = "http", url = "https://example.com/report", method = "POST" }\n',
                }
            ]
        }
    )

    text: str = Field(max_length=LARGEST_FILE, description="At most 256 Ki characters.")
    format: Literal["toml", "yaml"] = "toml"
    name: str = left_out(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="The owner of the schedules, if the text names none.",
    )


class ApplyRequest(FileRequest):
    """A file to apply. With the `fingerprint` of a plan, it is refused if the current plan is a different one."""

    fingerprint: str = left_out(min_length=1, max_length=100)
    allow_delete: bool = False


class FieldChangeResponse(ResponseBody):
    field: str
    before: ShallowJson
    after: ShallowJson


class PlanItem(ResponseBody):
    kind: Literal["create", "change", "delete"]
    id: str
    name: str
    changes: list[FieldChangeResponse]
    words: list[str]
    understood: str | None


class PlanResponse(ResponseBody):
    """The changes that a file would make. `words` describe the effect on the coming weeks."""

    name: str
    managed_by: str
    fingerprint: str
    empty: bool
    created: int
    changed: int
    deleted: int
    unchanged: int
    schedules: list[PlanItem]
    quiet_hours: list[PlanItem]


class AppliedResponse(ResponseBody):
    created: int
    changed: int
    deleted: int
    plan: PlanResponse
    warnings: list[str] = Field(default=[], description="About what was created or changed; each kind once.")
