"""`why`, `verify`, `plan` and `apply` of a service.

A service checks at most 31 days of some schedules in one request; a longer range is checked in several requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from noonbell.cli.backend.backend_protocol import ShownPlan
from noonbell.cli.backend.http import Client, escaped
from noonbell.cli.schedule_lookup import find_schedule
from noonbell.core.instants import instant
from noonbell.errors import NoonbellError, PlanOutdatedError, ScheduleNotFoundError
from noonbell.ledger import Answer, Report
from noonbell.ledger.verify import Problem
from noonbell.planning import Item, ScheduleFile
from noonbell.schedules.schedule_records import Page, Schedule

if TYPE_CHECKING:
    from noonbell.cli.connection_target import ConnectionTarget

_PART: Final = timedelta(days=31)
_DAY: Final = timedelta(days=1)
_SOME: Final = 200


class _Schedules(Protocol):
    async def get(self, schedule_id: str) -> Schedule: ...
    async def list(self, *, cursor: str | None = None, limit: int = 100, **wanted: Any) -> Page[Schedule]: ...


class RemoteLedger:
    def __init__(self, client: Client, schedules: _Schedules, place: ConnectionTarget) -> None:
        self._client = client
        self._schedules = schedules
        self._place = place
        self._known: dict[tuple[str, str | None], Schedule] = {}

    async def zone_of(self, task: str, owner: str | None) -> str:
        return (await self._find(task, owner)).timezone

    async def why(self, task: str, at: datetime | None, owner: str | None) -> Answer:
        try:
            schedule_id = (await self._find(task, owner)).schedule_id
        except ScheduleNotFoundError:
            schedule_id = task  # it may be deleted, and keeps its history under its id
        when = None if at is None else at.isoformat(timespec="seconds")
        answer = await self._client.get(f"/schedules/{escaped(schedule_id)}/why", at=when)
        return Answer(answer["text"], answer["facts"])

    async def _find(self, task: str, owner: str | None) -> Schedule:
        if (task, owner) not in self._known:
            self._known[task, owner] = await find_schedule(self._schedules, task, owner)
        return self._known[task, owner]

    # --- verify ---------------------------------------------------------------------------------------------------

    async def verify(
        self, owner: str | None, start: datetime | None, end: datetime | None, progress: Callable[[int], None]
    ) -> Report:
        if owner is not None:
            message = "A server verifies all schedules of a team; --owner and --scheduler require --store"
            raise self._place.cli_error(message, {"option": "--owner", "value": owner})
        upto = datetime.now(UTC) if end is None else end
        since = upto - _DAY if start is None else start
        report = Report([], [])
        first = True
        while first or since < upto:
            part = min(since + _PART, upto)
            async for page in self._pages(since, part):
                _add(report, page, count_schedules=first)
                progress(report.occurrences)
            since, first = part, False
        if start is None:
            report.remarks.append("A server checks the last day by default; see --from")
        report.remarks = list(dict.fromkeys(report.remarks))
        return report

    async def _pages(self, start: datetime, end: datetime) -> AsyncIterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            page = await self._client.get(
                "/verify", start=start.isoformat(), end=end.isoformat(), cursor=cursor, limit=_SOME
            )
            yield page
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def owners(self) -> list[str]:
        return []


def _add(report: Report, page: dict[str, Any], *, count_schedules: bool) -> None:
    report.schedules += page["schedules"] if count_schedules else 0
    report.occurrences += page["occurrences"]
    report.runs += page["runs"]
    report.spans += page["spans"]
    report.pruned += page["pruned_days"]
    report.more += page["more_problems"]
    report.remarks += page["remarks"]
    for one in page["problems"]:
        at = None if one["at"] is None else instant(datetime.fromisoformat(one["at"]))
        report.problems.append(Problem(one["kind"], one["text"], one["schedule"], None, None, at))


# --- files ------------------------------------------------------------------------------------------------------------


class RemoteFiles:
    def __init__(self, client: Client, place: ConnectionTarget) -> None:
        self._client = client
        self._place = place

    async def plan(self, file: ScheduleFile, text: str, form: str, team: str | None) -> ShownPlan:
        del team
        given = {"text": text, "format": form, "name": file.name}
        answer = await self._client.call("POST", "/plan", given)
        items, quiet = (msgspec.convert(answer[part], list[Item]) for part in ("schedules", "quiet_hours"))
        return ShownPlan(file.document.source, answer["managed_by"], answer["unchanged"], items, quiet, answer, given)

    async def apply(self, shown: ShownPlan, actor: str | None) -> Sequence[str]:
        if actor is not None:
            message = "The audit of a server names the key that was used; leave out --actor"
            raise self._place.cli_error(message, {"option": "--actor", "value": actor})
        given = {**shown.made, "fingerprint": shown.data["fingerprint"], "allow_delete": True}
        try:
            done = await self._client.call("POST", "/apply", given)
        except NoonbellError as error:
            if isinstance(error, PlanOutdatedError) or error.details.get("field") == "fingerprint":
                raise self._place.cli_error(f"{error}; nothing was applied", {"kind": "PlanOutdatedError"}) from error
            raise
        return [str(warning) for warning in done.get("warnings", ())]
