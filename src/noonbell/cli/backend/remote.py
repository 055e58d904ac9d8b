"""The remote backend: calls the REST API of a service and returns records of the library.

Fields that the API leaves out because the caller knows them (the team of the key) are added here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from noonbell.cli.backend.backend_protocol import Backend, EngineUp
from noonbell.cli.backend.http import Client, escaped
from noonbell.cli.backend.remote_ledger import RemoteFiles, RemoteLedger
from noonbell.cli.backend.remote_resources import RemoteChannels, RemoteKeys, RemoteMonitors, RemoteRules, RemoteSecrets
from noonbell.cli.backend.stream import events
from noonbell.schedules.history import Run
from noonbell.schedules.live_changes import LiveEvent
from noonbell.schedules.schedule_records import Page, QuietHoursRecord, Schedule, Upcoming
from noonbell.schedules.statistics import Statistics

if TYPE_CHECKING:
    from noonbell.cli.connection_target import ConnectionTarget

T = TypeVar("T")


@asynccontextmanager
async def connected(place: ConnectionTarget, key: str | None) -> AsyncIterator[Backend]:
    """Connect to the service of a place. The key is checked first, so that a wrong one is reported at once."""
    assert place.server is not None  # noqa: S101 - the caller has looked
    client = Client(place.server, key, as_json=place.as_json)
    caller = await client.get("/caller")
    yield RemoteBackend(client, place, str(caller["team"]))


class RemoteBackend:
    """One service, accessed with one key."""

    def __init__(self, client: Client, place: ConnectionTarget, team: str) -> None:
        self._client = client
        self._place = place
        self._team = team
        self.schedules = RemoteSchedules(client, team)
        self.channels = RemoteChannels(client, team)
        self.rules = RemoteRules(client, team)
        self.monitors = RemoteMonitors(client, team)
        self.secrets = RemoteSecrets(client, team)
        self.keys = RemoteKeys(client)
        self.ledger = RemoteLedger(client, self.schedules, place)
        self.files = RemoteFiles(client, place)

    def team_for(self, given: str | None) -> str:
        if given not in (None, self._team):
            message = f'The key is for the team "{self._team}" only; leave out --team, or use another key'
            raise self._place.cli_error(message, {"option": "--team", "value": given, "team": self._team})
        return self._team

    def team_seen(self, given: str | None) -> str | None:
        return self.team_for(given)

    async def engines(self) -> Sequence[EngineUp]:
        found = await self._client.every("/instances")
        return [
            EngineUp(
                up_since=datetime.fromisoformat(one.pop("up_since")),
                joined_at=datetime.fromisoformat(one.pop("joined_at")),
                **{name: one.get(name) for name in EngineUp._fields if name not in ("up_since", "joined_at")},
            )
            for one in found
        ]

    async def follow(self, team: str | None) -> AsyncIterator[LiveEvent | None]:
        async for event in events(self._client, "/events"):
            yield None if event is None else LiveEvent(event[0], event[1], team, event[2])  # type: ignore[arg-type]  # one of the three


class RemoteSchedules:
    def __init__(self, client: Client, team: str) -> None:
        self._client = client
        self._team = team

    async def create(self, *, team: str | None, fields: dict[str, Any]) -> Schedule:
        del team  # the team of the key, which was read before
        return _schedule(await self._client.call("POST", "/schedules", fields, once=True))

    async def get(self, schedule_id: str) -> Schedule:
        return _schedule(await self._client.get(f"/schedules/{escaped(schedule_id)}"))

    async def list(self, *, cursor: str | None = None, limit: int = 100, **wanted: Any) -> Page[Schedule]:
        wanted.pop("team", None)
        found = await self._client.get("/schedules", cursor=cursor, limit=limit, **wanted)
        return Page([_schedule(one) for one in found["items"]], found["next_cursor"])

    async def preview(self, schedule_id: str, count: int) -> Sequence[Upcoming]:
        found = await self._client.get(f"/schedules/{escaped(schedule_id)}/preview", count=count)
        return msgspec.convert(found["items"], list[Upcoming])

    async def update(self, schedule_id: str, fields: dict[str, Any]) -> Schedule:
        return _schedule(await self._client.call("PATCH", f"/schedules/{escaped(schedule_id)}", fields))

    async def pause(self, schedule_id: str) -> Schedule:
        return _schedule(await self._client.call("POST", f"/schedules/{escaped(schedule_id)}/pause"))

    async def resume(self, schedule_id: str) -> Schedule:
        return _schedule(await self._client.call("POST", f"/schedules/{escaped(schedule_id)}/resume"))

    async def delete(self, schedule_id: str) -> None:
        await self._client.call("DELETE", f"/schedules/{escaped(schedule_id)}")

    async def trigger(self, schedule_id: str, *, queue: bool, retry: bool) -> str:
        body = {"queue": queue, "retry": retry}
        made = await self._client.call("POST", f"/schedules/{escaped(schedule_id)}/trigger", body, once=True)
        return str(made["run_id"])

    # --- runs -----------------------------------------------------------------------------------------------------

    async def runs(self, schedule_id: str, *, cursor: str | None = None, limit: int = 100) -> Page[Run]:
        found = await self._client.get(f"/schedules/{escaped(schedule_id)}/runs", cursor=cursor, limit=limit)
        return msgspec.convert(found, Page[Run])

    async def recent_runs(
        self, *, cursor: str | None = None, limit: int = 100, outcome: str | None = None, team: str | None = None
    ) -> Page[Run]:
        del team
        found = await self._client.get("/runs", cursor=cursor, limit=limit, outcome=outcome)
        return msgspec.convert(found, Page[Run])

    async def run(self, run_id: str) -> Run:
        return msgspec.convert(await self._client.get(f"/runs/{escaped(run_id)}"), Run)

    async def statistics(self, schedule_id: str, *, last: int = 100) -> Statistics:
        found = await self._client.get(f"/schedules/{escaped(schedule_id)}/statistics", last=last)
        for name in ("duration", "lateness"):
            if found.get(name) is not None:
                found[name] = {key.removesuffix("_seconds"): value for key, value in found[name].items()}
        return msgspec.convert(found, Statistics, strict=False)

    # --- quiet hours ----------------------------------------------------------------------------------------------

    async def create_quiet_hours(
        self, name: str, windows: Sequence[dict[str, Any]], *, policy_id: str | None, team: str | None
    ) -> QuietHoursRecord:
        del team
        given: dict[str, Any] = {"name": name, "windows": list(windows)}
        if policy_id is not None:
            given["policy_id"] = policy_id
        return self._quiet(await self._client.call("POST", "/quiet-hours", given, once=True))

    async def update_quiet_hours(
        self, policy_id: str, *, name: str | None, windows: Sequence[dict[str, Any]] | None
    ) -> QuietHoursRecord:
        given = {key: value for key, value in (("name", name), ("windows", windows)) if value is not None}
        return self._quiet(await self._client.call("PATCH", f"/quiet-hours/{escaped(policy_id)}", given))

    async def get_quiet_hours(self, policy_id: str) -> QuietHoursRecord:
        return self._quiet(await self._client.get(f"/quiet-hours/{escaped(policy_id)}"))

    async def list_quiet_hours(self) -> Sequence[QuietHoursRecord]:
        return [self._quiet(one) for one in await self._client.every("/quiet-hours")]

    async def delete_quiet_hours(self, policy_id: str) -> None:
        await self._client.call("DELETE", f"/quiet-hours/{escaped(policy_id)}")

    def _quiet(self, document: dict[str, Any]) -> QuietHoursRecord:
        return msgspec.convert({"team": self._team, **document}, QuietHoursRecord)


def _schedule(document: dict[str, Any]) -> Schedule:
    return msgspec.convert({**document, "lane": document.get("lane") or ""}, Schedule)
