"""`Schedules`: durable schedules as a library.

    async with Schedules("sqlite:///app.db", callbacks={"report": report}) as schedules:
        await schedules.create(name="report", type="cron", spec="0 9 * * 1-5", timezone="Europe/Kyiv",
                               action={"kind": "callback", "name": "report"})
        await schedules.start()

Everything lives in the store; `create`, `update` and the rest work whether an engine runs or not, here or in another
process. `start` runs the engine of one lane: it takes the lane's name (a second live engine is refused), queues again
what a dead one left running, records that it is up, and begins to look.

Names are unique among the schedules of one owner (`managed_by`), ids for ever.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self, Unpack, cast, get_args

import msgspec

from noonbell.actions.callback import Call, moment
from noonbell.actions.egress import Egress
from noonbell.actions.http.slots import HttpLimits
from noonbell.actions.registry import Actions, check_action
from noonbell.actions.secrets.keys import KeyRing
from noonbell.actions.secrets.records import DEFAULT_TEAM
from noonbell.actions.secrets.secrets import Secrets
from noonbell.actions.targets import TargetLike
from noonbell.core.records import AT_ONCE, Asked, DurableSchedule, QuietHoursPolicy, StoredSchedule
from noonbell.core.turns import definition_of
from noonbell.engine import SystemClock
from noonbell.errors import (
    NaiveDatetimeError,
    ScheduleBusyError,
    ScheduleInvalidError,
    ScheduleNotFoundError,
    StoreError,
)
from noonbell.notify import Channels, Desk, NotifyStore, Rules
from noonbell.ports import AuditFilter, Clock, DocumentStore, ScheduleFilter, ScheduleStore, Store
from noonbell.schedules import audits, changes
from noonbell.schedules.fields import Changes, Fields
from noonbell.schedules.history import RunHistory
from noonbell.schedules.lane import Lane
from noonbell.schedules.occurrences import decided, upcoming
from noonbell.schedules.pace import batches
from noonbell.schedules.records import (
    Audited,
    Occurrence,
    Page,
    QuietHoursRecord,
    Schedule,
    Undelivered,
    Upcoming,
    page_size,
    quiet_hours_record,
    schedule_record,
    undelivered,
)
from noonbell.store.opening import open_store
from noonbell.timing import QuietHours

logger = logging.getLogger("noonbell.schedules")

Progress = Callable[[int, int], None]

_BREATH: Final = 500
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = moment(0)
_encode = msgspec.json.Encoder().encode


class Schedules(RunHistory):
    """Durable schedules of one store, and the engine of one lane of them."""

    def __init__(
        self,
        store: str | ScheduleStore,
        *,
        clock: Clock | None = None,
        callbacks: Mapping[str, Callable[[Call], Any]] | None = None,
        targets: Mapping[str, TargetLike] | None = None,
        commands: bool | Collection[str] = False,
        secrets: Secrets | KeyRing | None = None,
        lane: str = "default",
        managed_by: str = "api",
        actor: str = "api",
        longest_wait: timedelta = timedelta(seconds=5),
        retention: timedelta | None = None,
        egress: Egress | None = None,
        http_limits: HttpLimits | None = None,
        public_url: str | None = None,
        apprise: bool = False,
    ) -> None:
        opened = open_store(store)
        if not hasattr(opened, "claim_by_policy"):
            raise StoreError(f"{opened!r} cannot hold durable schedules; memory, SQLite and PostgreSQL can")
        if longest_wait <= timedelta(0):
            raise ScheduleInvalidError("longest_wait", longest_wait, "must be longer than nothing")
        if retention is not None and retention < timedelta(days=1):
            raise ScheduleInvalidError("retention", retention, "must be a day at least, or None to keep everything")
        self._store = cast("ScheduleStore", opened)
        self._owns_store = isinstance(store, str)
        self._actor = actor
        self._clock = SystemClock() if clock is None else clock
        self.secrets = _secrets(secrets, opened, self._clock, actor)
        self._actions = Actions(
            self._clock, callbacks=callbacks, targets=targets, commands=commands, secrets=self.secrets, egress=egress,
            http_limits=http_limits,
        )  # fmt: skip
        self._lane = Lane(
            self._store, self._clock, lane, self._actions, longest_wait_us=longest_wait // _MICROSECOND,
            retention_us=None if retention is None else retention // _MICROSECOND,
            desk=self._opened_desk(opened, lane, egress, public_url, apprise=apprise),
        )  # fmt: skip
        self._managed_by = managed_by

    def _opened_desk(
        self, opened: Store, lane: str, egress: Egress | None, public_url: str | None, *, apprise: bool
    ) -> Desk:
        store = cast("NotifyStore", opened)
        desk = Desk(
            store, self._clock, lane=lane, egress=egress, secrets=self.secrets, public_url=public_url, apprise=apprise
        )
        self.channels = Channels(
            store, self._clock, secrets=self.secrets, egress=egress, actor=self._actor, apprise=apprise,
            on_change=desk.wake,
        )  # fmt: skip
        self.rules = Rules(store, self._clock, actor=self._actor, on_change=desk.wake)
        return desk

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the store; an open one stays as it is."""
        await self._store.open()

    async def close(self) -> None:
        """Stop the engine, and close the store where it was given as an address."""
        await self.stop()
        if self._owns_store:
            await self._store.close()

    # --- the engine -----------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether an engine looks after the lane here; not so while another has taken it."""
        return self._lane.engine is not None

    @property
    def metrics(self) -> dict[str, Any] | None:
        """What the running engine knows of itself."""
        return None if self._lane.engine is None else self._lane.engine.metrics.summary()

    def register(self, name: str, callback: Callable[[Call], Any]) -> None:
        """Let actions call this function by name; it is given a Call."""
        self._actions.callbacks[name] = callback

    async def start(self) -> None:
        """Run what is due in the lane, from now on."""
        await self._store.open()
        await self._lane.start()

    async def stop(self) -> None:
        """Begin nothing new, wait for what runs, and let go of the lane.

        The lane is kept until then, also where a caller stops waiting; a further call waits for the same stop.
        """
        await self._lane.stop()

    def _wake(self, at: int | None) -> None:
        if self._lane.engine is not None and at is not None:
            self._lane.engine.wake(at)

    async def _lanes_up(self) -> Mapping[str, int]:
        """Since when which lanes are up, wherever their engines run."""
        found = await self._store.lanes_up()
        if self._lane.engine is not None:  # ours knows of the sleep of the machine, too
            found[self._lane.name] = self._lane.engine.up_since
        return found

    # --- creating -------------------------------------------------------------------------------------------------

    async def create(self, **fields: Unpack[Fields]) -> Schedule:
        """Create a schedule; its first occurrence is the first one after now."""
        now = self._clock.now()
        new, understood = self._creator(now).new(fields)
        self._require_allowed([new])
        await self._require_quiet_hours([new])
        await self._warn_of_secrets([new.columns.definition])
        await self._store.create_schedules([new], now, self._actor)
        self._wake(new.next_run_at)
        (stored,) = await self._store.find_schedules([new.schedule_id])
        return schedule_record(stored, understood)

    async def create_many(self, many: Iterable[Fields], *, progress: Progress | None = None) -> list[str]:
        """Create schedules in batches, each whole or not at all; returns their ids, in order.

        All are checked before the first is written. `progress` is called with how many are written, and of how many.
        """
        now = self._clock.now()
        made: list[DurableSchedule] = []
        creator = self._creator(now)
        for fields in many:
            made.append(creator.new(fields)[0])
            if len(made) % _BREATH == 0:
                await asyncio.sleep(0)  # others share this event loop
        self._require_allowed(made)
        await self._require_quiet_hours(made)
        await self._warn_of_secrets(new.columns.definition for new in made)
        async for batch, done in batches(made, self._clock):
            await self._store.create_schedules(batch, now, self._actor)
            self._wake(min((new.next_run_at for new in batch if new.next_run_at is not None), default=None))
            if progress is not None:
                progress(done, len(made))
        return [new.schedule_id for new in made]

    def _creator(self, now: int) -> changes.Creator:
        return changes.Creator(now, managed_by=self._managed_by, lane=self._lane.name)

    def _require_allowed(self, made: Iterable[DurableSchedule]) -> None:
        for definition in {new.columns.definition for new in made}:
            self._actions.require(definition_of(definition).action)

    async def _warn_of_secrets(self, definitions: Iterable[str]) -> None:
        """Secrets come and go by themselves, so one that is missing now is no error; a slip of the pen is likelier."""
        naming = {definition for definition in definitions if "${secrets." in definition}
        if naming and (missing := await self.secrets.missing(DEFAULT_TEAM, list(naming))):
            logger.warning("There is no secret %s, and a schedule refers to it; its runs will fail", ", ".join(missing))

    async def _require_quiet_hours(self, made: Iterable[DurableSchedule]) -> None:
        wanted = {new.columns.quiet_hours_policy_id for new in made} - {None}
        if wanted:
            known = {policy.policy_id for policy in await self._store.quiet_hours()}
            for policy_id in sorted(cast("set[str]", wanted) - known):
                reason = "names no quiet hours; create them first with create_quiet_hours"
                raise ScheduleInvalidError("quiet_hours_policy_id", policy_id, reason)

    # --- reading --------------------------------------------------------------------------------------------------

    async def get(self, schedule_id: str) -> Schedule:
        return schedule_record(await self._find(schedule_id))

    async def list(self, *, cursor: str | None = None, limit: int = 100, **wanted: Any) -> Page[Schedule]:
        """A page of schedules, oldest first. Filters: enabled, type, tag, name_contains, managed_by, lane,
        quiet_hours_policy_id.
        """
        unknown = set(wanted) - set(ScheduleFilter._fields)
        if unknown:
            known = ", ".join(ScheduleFilter._fields)
            raise ScheduleInvalidError("filter", min(unknown), f"is not known; known are {known}")
        size = page_size(limit)
        found = await self._store.list_schedules(ScheduleFilter(**wanted), _cursor(cursor), size + 1)
        items = [schedule_record(stored) for stored in found[:size]]
        return Page(items, str(found[size - 1].sid) if len(found) > size else None)

    async def preview(self, schedule_id: str, count: int = 10) -> Sequence[Upcoming]:
        """The next occurrences, as the schedule stands."""
        return upcoming(await self._find(schedule_id), self._clock.now(), page_size(count))

    async def occurrences(
        self,
        schedule_id: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Occurrence]:
        """What became of the occurrences from `start` to `end`, oldest first; of the last day unless told otherwise.

        A deleted schedule keeps its own.
        """
        existing = await self._store.find_schedules([schedule_id])
        stored = existing[0] if existing else None
        sid = (await self._history(schedule_id)).sid if stored is None else stored.sid
        now, size = self._clock.now(), page_size(limit)
        upto = now if end is None else _instant(end)
        after = (upto - timedelta(days=1) // _MICROSECOND if start is None else _instant(start)) - 1
        if cursor is not None:
            after = max(after, _cursor(cursor))
        found = await decided(self._store, sid, stored, now, after=after, upto=upto, limit=size + 1)
        items = [occurrence for _, occurrence in found[:size]]
        return Page(items, str(found[size - 1][0]) if len(found) > size else None)

    async def _find(self, schedule_id: str) -> StoredSchedule:
        found = await self._store.find_schedules([schedule_id])
        if not found:
            raise ScheduleNotFoundError("schedule", schedule_id)
        return found[0]

    # --- changing -------------------------------------------------------------------------------------------------

    async def update(self, schedule_id: str, **fields: Unpack[Changes]) -> Schedule:
        """Change fields of a schedule; what was due before is decided by what held before."""
        change = await self._change([schedule_id], fields)
        return schedule_record(await self._find(schedule_id), change.understood)

    async def update_many(
        self, schedule_ids: Sequence[str], fields: Changes, *, progress: Progress | None = None
    ) -> None:
        """Change the same fields of many, in batches, each whole or not at all."""
        async for batch, done in batches(schedule_ids, self._clock):
            await self._change(batch, fields)
            if progress is not None:
                progress(done, len(schedule_ids))

    async def pause(self, schedule_id: str) -> Schedule:
        """Let it rest: until it is resumed it has no occurrences. What was due before is still decided."""
        return await self.update(schedule_id, enabled=False)

    async def resume(self, schedule_id: str) -> Schedule:
        return await self.update(schedule_id, enabled=True)

    async def _change(self, schedule_ids: Sequence[str], fields: Changes) -> changes.Change:
        policy_id = fields.get("quiet_hours_policy_id")
        if isinstance(policy_id, str) and not await self._store.quiet_hours(policy_id):
            reason = "names no quiet hours; create them first with create_quiet_hours"
            raise ScheduleInvalidError("quiet_hours_policy_id", policy_id, reason)
        up = await self._lanes_up()
        change = changes.Change(fields, self._clock.now(), up, self._actor)
        if "action" in fields:
            action = check_action(fields["action"])
            self._actions.require(action)
            await self._warn_of_secrets([_encode(action).decode()])
        await self._store.edit_schedules(schedule_ids, change)
        self._wake(change.wake_at)
        return change

    async def delete(self, schedule_id: str) -> None:
        """Delete a schedule. Its history stays; a run that executes ends unrecorded, as abandoned."""
        now, actor = self._clock.now(), self._actor
        await self._store.edit_schedules([schedule_id], lambda stored: changes.deleted(stored, now, actor))

    async def trigger(self, schedule_id: str, *, via: Asked = "manual") -> str:
        """Run it now, beside its occurrences; returns the id of the run. `via` says how it was asked for.

        It is queued, and whichever engine holds the schedule's lane starts it: at once where that is this one, at its
        next look where it is another. Refused while a run is under way, unless the schedule's overlap is `allow`.
        """
        if via not in get_args(Asked):
            raise ScheduleInvalidError("via", via, f"must be one of {', '.join(get_args(Asked))}")
        run_for = await self._store.ask(schedule_id, self._clock.now(), self._actor, via)
        if run_for is None:
            raise ScheduleBusyError(schedule_id)
        self._wake(AT_ONCE)
        return f"{schedule_id}:manual:{run_for}"

    # --- quiet hours ----------------------------------------------------------------------------------------------

    async def create_quiet_hours(
        self, name: str, windows: Sequence[Mapping[str, Any]], *, policy_id: str | None = None
    ) -> QuietHoursRecord:
        """Quiet hours that schedules may refer to; the windows are those of `QuietHours.from_json`."""
        chosen = uuid.uuid4().hex if policy_id is None else policy_id
        if await self._store.quiet_hours(chosen):
            raise ScheduleInvalidError("policy_id", chosen, "is taken; choose another, or update it")
        return await self._put_quiet_hours(chosen, name, windows)

    async def update_quiet_hours(
        self, policy_id: str, *, name: str | None = None, windows: Sequence[Mapping[str, Any]] | None = None
    ) -> QuietHoursRecord:
        """Change quiet hours; every schedule that refers to them goes on in a new epoch."""
        before = await self._quiet_hours(policy_id)
        kept = quiet_hours_record(before)
        return await self._put_quiet_hours(
            policy_id, kept.name if name is None else name, kept.windows if windows is None else windows, before
        )

    async def get_quiet_hours(self, policy_id: str) -> QuietHoursRecord:
        return quiet_hours_record(await self._quiet_hours(policy_id))

    async def _quiet_hours(self, policy_id: str) -> QuietHoursPolicy:
        found = await self._store.quiet_hours(policy_id)
        if not found:
            raise ScheduleNotFoundError("quiet-hours policy", policy_id)
        return found[0]

    async def list_quiet_hours(self) -> Sequence[QuietHoursRecord]:
        return [quiet_hours_record(policy) for policy in await self._store.quiet_hours()]

    async def delete_quiet_hours(self, policy_id: str) -> None:
        """Delete quiet hours that no schedule refers to."""
        before = await self._quiet_hours(policy_id)
        audit = changes.quiet_hours_told(self._clock.now(), self._actor, policy_id, before=before)
        if not await self._store.drop_quiet_hours(policy_id, audit):
            raise ScheduleNotFoundError("quiet-hours policy", policy_id)

    async def _put_quiet_hours(
        self,
        policy_id: str,
        name: str,
        windows: Sequence[Mapping[str, Any]],
        before: QuietHoursPolicy | None = None,
    ) -> QuietHoursRecord:
        document = _encode(QuietHours.from_json({"windows": list(windows)}).to_json()).decode()
        up, now = await self._lanes_up(), self._clock.now()
        policy = QuietHoursPolicy(policy_id, name, document, now, now)
        change = changes.Change({}, now, up, self._actor)
        audit = changes.quiet_hours_told(now, self._actor, policy_id, before=before, after=policy)
        await self._store.put_quiet_hours(policy, audit, change.reopen)
        self._wake(change.wake_at)
        return await self.get_quiet_hours(policy_id)

    # --- audit ----------------------------------------------------------------------------------------------------

    async def audit(
        self,
        *,
        subject: str | None = None,
        event: str | None = None,
        actor: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Audited]:
        """A page of audit events, oldest first; missed slots one by one, as long as a stretch has 1,000 at most."""
        from_at = None if start is None else _instant(start)
        to_at = None if end is None else _instant(end)
        size = page_size(limit)
        wanted = AuditFilter(subject, event, actor, from_at, to_at)
        after = audits.Place.of(cursor)
        return audits.page(await self._store.audit(wanted, after.after_row, size + 1), after, size)

    # --- messages -------------------------------------------------------------------------------------------------

    def deliver_to(self, name: str, target: TargetLike) -> None:
        """Let messages reach this target by name: a function, a RedisStream, an HttpEndpoint."""
        self._actions.deliver_to(name, target)

    async def dead_letters(
        self, schedule_id: str | None = None, *, cursor: str | None = None, limit: int = 100
    ) -> Page[Undelivered]:
        """A page of the messages that could not be delivered, oldest first; those of a deleted schedule, too."""
        sid = None if schedule_id is None else (await self._history(schedule_id)).sid
        size = page_size(limit)
        found = await self._store.dead_letters(sid, _cursor(cursor), size + 1)
        items = [undelivered(letter) for letter in found[:size]]
        return Page(items, str(found[size - 1].number) if len(found) > size else None)

    async def revive_dead_letters(self, numbers: Sequence[int]) -> int:
        """Put them back at the end of their streams, to be delivered at once; returns how many there were."""
        now = self._clock.now()
        tell = changes.letters_told(now, self._actor, "message.revived")
        revived = await self._store.revive_dead_letters(_numbers(numbers), now, tell)
        self._actions.wake()
        return revived

    async def drop_dead_letters(self, numbers: Sequence[int]) -> int:
        """Forget them; returns how many there were."""
        tell = changes.letters_told(self._clock.now(), self._actor, "message.dropped")
        return await self._store.drop_dead_letters(_numbers(numbers), tell)


def _secrets(given: Secrets | KeyRing | None, store: Store, clock: Clock, actor: str) -> Secrets:
    """The secrets of the store; without a master key they can be listed, and that is all."""
    return given if isinstance(given, Secrets) else Secrets(cast("DocumentStore", store), given, clock, actor)


def _numbers(numbers: Sequence[int]) -> Sequence[int]:
    for number in numbers:
        if type(number) is not int:
            raise ScheduleInvalidError("numbers", number, "must be the numbers of dead letters, whole numbers")
    return numbers


def _cursor(cursor: str | None) -> int:
    if cursor is None:
        return 0
    try:
        return int(cursor)
    except (TypeError, ValueError):
        raise ScheduleInvalidError("cursor", cursor, "must be the next_cursor of a page") from None


def _instant(at: datetime) -> int:
    if at.tzinfo is None:
        raise NaiveDatetimeError(at)
    return (at - _EPOCH) // _MICROSECOND
