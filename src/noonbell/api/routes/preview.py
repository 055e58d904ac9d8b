"""Preview: the meaning of a text or a spec, before anything is created."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading
from noonbell.api.deps import Serving
from noonbell.api.models.planned import FireResponse, PreviewRequest, PreviewResponse, SurpriseResponse
from noonbell.api.schedule_presenter import Meant, described, read_text
from noonbell.core.instants import moment
from noonbell.core.records import ScheduleColumns
from noonbell.core.turns import timing_of
from noonbell.cron import parse
from noonbell.errors import ScheduleInvalidError
from noonbell.language import dst_surprises
from noonbell.schedules.fields import first_anchor, read_fields, require_future

router = api_router("preview")

_YEAR: Final = timedelta(days=366)
# What a run would do does not matter here; the fields want something.
_NOTHING: Final = {"kind": "callback", "name": "preview"}


@router.post("/preview", summary="Preview a text or a spec")
async def preview(service: Serving, caller: Reading, given: PreviewRequest) -> PreviewResponse:  # noqa: ARG001 - who asks has to have a key
    """Returns the interpretation, the description and the next occurrences of a text (English or cron) or a spec."""
    now = service.clock.now()
    meant = _meant(given, now)
    fields = meant.fields
    columns = read_fields({**fields, "dst": given.dst, "action": _NOTHING}, None).columns
    timing = timing_of(columns, first_anchor(columns, now))
    require_future(columns, timing, now)
    zone = ZoneInfo(columns.timezone)
    fires: list[FireResponse] = []
    at = timing.following(now)
    while at is not None and len(fires) < given.count:
        fires.append(FireResponse(at=moment(at), local=moment(at, zone).isoformat()))
        at = timing.following(at)
    return PreviewResponse(
        type=fields["type"],
        spec=columns.spec,
        timezone=columns.timezone,
        fields={"type": fields["type"], "spec": columns.spec, "timezone": columns.timezone},
        description=meant.description or described(columns.type, columns.spec, columns.timezone),
        notes=list(meant.notes),
        next=fires,
        surprises=_surprises(columns, zone, now, given),
    )


def _meant(given: PreviewRequest, now: int) -> Meant:
    said = given.given()
    if "text" in said:
        for field in ("type", "spec"):
            if field in said:
                raise ScheduleInvalidError("text", said["text"], f"says when, and so does {field}; give one of the two")
        return read_text(said["text"], now, said.get("timezone"))
    for field in ("type", "spec"):
        if field not in said:
            raise ScheduleInvalidError(field, None, "is missing")
    return Meant({"type": said["type"], "spec": said["spec"], "timezone": given.timezone}, "")


def _surprises(columns: ScheduleColumns, zone: ZoneInfo, now: int, given: PreviewRequest) -> list[SurpriseResponse]:
    if columns.type != "cron":
        return []
    start = moment(now).astimezone(UTC)
    return [
        SurpriseResponse(
            date=one.date.isoformat(),
            kind=one.kind,
            times=[f"{at:%H:%M}" for at in one.times],
            sentence=one.sentence,
        )
        for one in dst_surprises(parse(columns.spec), zone, start, start + _YEAR, dst=given.dst)
    ]
