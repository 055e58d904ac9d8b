"""'Test now': send the request of an action once, and show the response. Only an audit event is stored.

The request is made as in a run: secrets are filled in and masked, egress is checked, and the response is judged. A
schedule that is not saved yet has no signing keys, so its test is not signed. The timeout is LONGEST seconds.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.actions.http.http_jobs import HttpJobs
from noonbell.actions.registry import check_action
from noonbell.actions.results import Finished
from noonbell.core.attempt_detail import unpack
from noonbell.core.records import AuditEvent, Definition, ScheduleColumns, Start, StoredSchedule
from noonbell.errors import HttpJobFailedError, ScheduleInvalidError
from noonbell.web.session import RequestContext

LONGEST: Final = 30.0


class Trial(NamedTuple):
    """The request and the response; `signed` is True if the request was signed as in a run."""

    good: bool
    detail: dict[str, Any]
    signed: bool


async def try_action(visitor: RequestContext, given: dict[str, Any], schedule_id: str | None) -> Trial:
    """Send the request. Raises ScheduleInvalidError if the action is invalid or is not an http action."""
    action = check_action(given)
    if action["kind"] != "http":
        reason = "can be tested without saving only if it is http; save it, and press Run now"
        raise ScheduleInvalidError("action.kind", action["kind"], reason)
    signed = schedule_id is not None and action.get("sign") is not False
    if schedule_id is None:
        action["sign"] = False
    timeout = dict(action.get("timeout", {}))
    timeout["total"] = min(float(timeout.get("total", LONGEST)), LONGEST)
    action["timeout"] = timeout
    service, now = visitor.service, visitor.service.clock.now()
    jobs = HttpJobs(service.clock, egress=service.egress, secrets=service.secrets)
    start = Start(
        sid=0, kind="manual", run_for=now, fence=0, attempt=1, cause="manual", epoch=0, started_at=now, due_at=now,
        following=None,
    )  # fmt: skip
    try:
        finished: Finished = await jobs.prepare(_as_stored(action, schedule_id, visitor.team, now), start).call()
        good, packed = True, finished.detail
    except HttpJobFailedError as error:
        good, packed = False, error.detail
    finally:
        await jobs.close()
    detail = {} if packed is None else unpack(packed)
    await _audit(visitor, schedule_id, detail, now, good=good)
    return Trial(good, detail, signed and service.secrets.usable)


async def _audit(
    visitor: RequestContext, schedule_id: str | None, detail: dict[str, Any], now: int, *, good: bool
) -> None:
    """Record the test request in the audit."""
    request = detail.get("request") or {}
    audited = {"method": request.get("method"), "url": request.get("url"), "succeeded": good}
    event = AuditEvent(
        now, "schedule.tested", schedule_id or "(not saved)", visitor.caller.actor, json.dumps(audited), visitor.team
    )
    await visitor.service.store.documents.write(audits=[event])


def _as_stored(action: dict[str, Any], schedule_id: str | None, team: str, now: int) -> StoredSchedule:
    """Return the action as a schedule that is due now; only the fields that make up the request matter."""
    definition = msgspec.json.encode(Definition(action=action)).decode()
    return StoredSchedule(
        sid=0, schedule_id=schedule_id or "trial", enabled=True, managed_by="api", lane="", created_at=now,
        columns=ScheduleColumns("trial", "interval", "60", "UTC", None, "skip", None, definition),
        updated_at=now, next_run_at=now, last_run_at=None, last_attempt_at=None, last_success_at=None,
        last_failure_at=None, epoch=0, cursor_at=now, anchor_at=now, backlog_left=None, backlog_until=None,
        last_run_for=None, quiet=None, ran=None, lives=[], team=team,
    )  # fmt: skip
