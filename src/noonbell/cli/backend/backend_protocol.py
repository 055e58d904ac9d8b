"""The interface between commands and backends, by subject.

The names and records are those of the library (`Schedules`, `Channels`, …), so that the local side is the library
itself. Errors are those of the library on both sides; an operation that a server does not support is a `CliError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from noonbell.access import ApiKey
from noonbell.actions.secrets.repository import Rotation
from noonbell.actions.secrets.secret_records import SecretFacts
from noonbell.actions.signatures import SigningKey
from noonbell.ledger import Answer, Report
from noonbell.monitors import Monitor
from noonbell.monitors.monitor_records import FlipRecord, MonitorPage, Ping
from noonbell.notify.notice_records import Channel, ChannelPage, Rule, RulePage
from noonbell.planning import Item, ScheduleFile
from noonbell.schedules.history import Run
from noonbell.schedules.live_changes import LiveEvent
from noonbell.schedules.schedule_records import Page, QuietHoursRecord, Schedule, Upcoming
from noonbell.schedules.statistics import Statistics


class ScheduleFace(Protocol):
    """Schedules, their runs, and quiet hours. Lists include the tasks that programs have declared."""

    async def create(self, *, team: str | None, fields: dict[str, Any]) -> Schedule: ...
    async def get(self, schedule_id: str) -> Schedule: ...
    async def list(self, *, cursor: str | None = None, limit: int = 100, **wanted: Any) -> Page[Schedule]: ...
    async def preview(self, schedule_id: str, count: int) -> Sequence[Upcoming]: ...
    async def update(self, schedule_id: str, fields: dict[str, Any]) -> Schedule: ...
    async def pause(self, schedule_id: str) -> Schedule: ...
    async def resume(self, schedule_id: str) -> Schedule: ...
    async def delete(self, schedule_id: str) -> None: ...
    async def trigger(self, schedule_id: str, *, queue: bool, retry: bool) -> str: ...
    async def runs(self, schedule_id: str, *, cursor: str | None = None, limit: int = 100) -> Page[Run]: ...
    async def recent_runs(
        self, *, cursor: str | None = None, limit: int = 100, outcome: str | None = None, team: str | None = None
    ) -> Page[Run]: ...
    async def run(self, run_id: str) -> Run: ...
    async def statistics(self, schedule_id: str, *, last: int = 100) -> Statistics: ...

    async def create_quiet_hours(
        self, name: str, windows: Sequence[dict[str, Any]], *, policy_id: str | None, team: str | None
    ) -> QuietHoursRecord: ...
    async def update_quiet_hours(
        self, policy_id: str, *, name: str | None, windows: Sequence[dict[str, Any]] | None
    ) -> QuietHoursRecord: ...
    async def get_quiet_hours(self, policy_id: str) -> QuietHoursRecord: ...
    async def list_quiet_hours(self) -> Sequence[QuietHoursRecord]: ...
    async def delete_quiet_hours(self, policy_id: str) -> None: ...


class ChannelFace(Protocol):
    async def create(self, *args: Any, **kwargs: Any) -> Channel: ...
    async def list(self, *, team: str | None = None, cursor: str | None = None, limit: int = 100) -> ChannelPage: ...
    async def delete(self, channel_id: str) -> None: ...
    async def test(self, channel_id: str) -> str: ...
    async def signing_keys(self, channel_id: str) -> Sequence[str]: ...


class RuleFace(Protocol):
    async def create(self, *args: Any, **kwargs: Any) -> Rule: ...
    async def list(self, *, team: str | None = None, cursor: str | None = None, limit: int = 100) -> RulePage: ...
    async def delete(self, rule_id: str) -> None: ...


class MonitorFace(Protocol):
    async def create(self, *args: Any, **kwargs: Any) -> Monitor: ...
    async def get(self, monitor_id: str) -> Monitor: ...
    async def list(self, *, team: str | None = None, cursor: str | None = None, limit: int = 100) -> MonitorPage: ...
    async def pings(self, monitor_id: str, *, limit: int = 50) -> Sequence[Ping]: ...
    async def flips(self, monitor_id: str, *, limit: int = 200) -> Sequence[FlipRecord]: ...
    async def update(self, *args: Any, **kwargs: Any) -> Monitor: ...
    async def pause(self, monitor_id: str) -> Monitor: ...
    async def resume(self, monitor_id: str) -> Monitor: ...
    async def renew_token(self, monitor_id: str) -> Monitor: ...
    async def delete(self, monitor_id: str) -> None: ...
    async def ping(self, *args: Any, **kwargs: Any) -> Monitor: ...


class SecretFace(Protocol):
    async def put(self, team: str, name: str, value: str) -> SecretFacts: ...
    async def list(self, team: str) -> Sequence[SecretFacts]: ...
    async def delete(self, team: str, name: str) -> bool: ...
    async def rotate(self, *, page: int = 100, progress: Callable[[int], None] | None = None) -> Rotation: ...
    async def signing_keys(self, schedule_id: str, team: str) -> Sequence[SigningKey]: ...
    async def rotate_signing_keys(self, schedule_id: str, team: str, *, overlap: timedelta) -> Sequence[SigningKey]: ...


class KeyFace(Protocol):
    """The keys of the REST API."""

    async def create_key(self, *args: Any, **kwargs: Any) -> tuple[ApiKey, str]: ...
    async def list_keys(self, team: str | None, *, after: str = "", limit: int = 100) -> Sequence[ApiKey]: ...
    async def revoke_key(self, key_id: str) -> Sequence[str]: ...


class LedgerFace(Protocol):
    async def zone_of(self, task: str, owner: str | None) -> str:
        """Return the IANA name of the zone in which a task's times are given."""
        ...

    async def why(self, task: str, at: datetime | None, owner: str | None) -> Answer: ...

    async def verify(
        self, owner: str | None, start: datetime | None, end: datetime | None, progress: Callable[[int], None]
    ) -> Report:
        """Check the ledger. `progress` is called with the number of rows that were read."""
        ...

    async def owners(self) -> list[str]:
        """Return all owners of tasks and schedules."""
        ...


class ShownPlan(NamedTuple):
    """A plan for people, and as plain values."""

    source: str
    managed_by: str
    unchanged: int
    schedules: Sequence[Item]
    quiet_hours: Sequence[Item]
    data: dict[str, Any]
    made: Any  # the data with which the same backend applies it

    @property
    def empty(self) -> bool:
        return not (self.schedules or self.quiet_hours)

    @property
    def deleted(self) -> list[str]:
        return [item.id for item in (*self.schedules, *self.quiet_hours) if item.kind == "delete"]

    def ids(self, kind: str) -> list[str]:
        return [item.id for item in self.schedules if item.kind == kind]


class FileFace(Protocol):
    """A file of schedules against the store. `apply` makes exactly the changes of a plan that was shown, or none."""

    async def plan(self, file: ScheduleFile, text: str, form: str, team: str | None) -> ShownPlan: ...
    async def apply(self, shown: ShownPlan, actor: str | None) -> Sequence[str]:
        """Apply the plan and return warnings."""
        ...


class EngineUp(NamedTuple):
    """A live engine. Its host and process are None for callers who may not see them."""

    lane: str
    state: str
    up_since: datetime  # of the lane
    joined_at: datetime
    seen_seconds_ago: float
    version: str
    zone_data: str
    load: Mapping[str, Any]
    instance: str | None = None
    host: str | None = None
    pid: int | None = None
    last_poll_seconds_ago: float | None = None  # None: it has not polled yet

    def poll_seconds_ago(self, now: datetime) -> float:
        """Return the seconds since its last poll that the store has recorded; before the first one, since it joined."""
        joined = (now - self.joined_at).total_seconds()
        return joined if self.last_poll_seconds_ago is None else self.last_poll_seconds_ago

    @property
    def where(self) -> str:
        return "" if self.host is None else f"{self.host}, process {self.pid}"

    def data(self) -> dict[str, Any]:
        fields = self._asdict()
        return {**fields, "up_since": self.up_since.isoformat(), "joined_at": self.joined_at.isoformat()}


class Backend(Protocol):
    """A database or a server, as commands see it."""

    @property
    def schedules(self) -> ScheduleFace: ...
    @property
    def channels(self) -> ChannelFace: ...
    @property
    def rules(self) -> RuleFace: ...
    @property
    def monitors(self) -> MonitorFace: ...
    @property
    def secrets(self) -> SecretFace: ...
    @property
    def keys(self) -> KeyFace: ...
    @property
    def ledger(self) -> LedgerFace: ...
    @property
    def files(self) -> FileFace: ...

    def team_for(self, given: str | None) -> str:
        """Return the team for a new object; raise `CliError` if it cannot be created in that team here."""
        ...

    def team_seen(self, given: str | None) -> str | None:
        """Return the team whose objects are listed; None for all teams."""
        ...

    async def engines(self) -> Sequence[EngineUp]: ...

    def follow(self, team: str | None) -> AsyncIterator[LiveEvent | None]:
        """Yield events as they happen, and None from time to time if there are none."""
        ...
