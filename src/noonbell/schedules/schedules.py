"""`Schedules`: durable schedules as a library.

    async with Schedules("sqlite:///app.db", callbacks={"report": report}) as schedules:
        await schedules.create(name="report", type="cron", spec="0 9 * * 1-5", timezone="Europe/Kyiv",
                               action={"kind": "callback", "name": "report"})
        await schedules.start()

Everything lives in the store; `create`, `update` and the rest work whether an engine runs or not, here or in another
process. `start` runs an engine of one lane, beside any others that share it, here or elsewhere: it joins the lane,
queues again what dead engines left running, records that it is up, and begins to look.

Every schedule, every quiet hours and every message belongs to a team. `acting` returns a view for one actor: it acts in
the actor's name, and sees what belongs to the actor's team; the rest does not exist for it. An installation without
teams uses a single one.

Names are unique among the schedules of one team and owner (`managed_by`), ids for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from noonbell.actions.callback import Call
from noonbell.actions.egress import Egress
from noonbell.actions.http.slots import HttpLimits
from noonbell.actions.registry import Actions, check_action
from noonbell.actions.secrets.keys import KeyRing
from noonbell.actions.secrets.secrets import Secrets
from noonbell.actions.targets import TargetLike
from noonbell.core.ids import run_id
from noonbell.core.instants import MICROSECOND, moment
from noonbell.core.records import (
    AT_ONCE,
    DEFAULT_TEAM,
    MOST_ASKED,
    DurableSchedule,
    Edit,
    StoredSchedule,
    TriggerSource,
)
from noonbell.core.turns import definition_of
from noonbell.engine import clock_for
from noonbell.errors import (
    NoonbellError,
    ScheduleBusyError,
    ScheduleChangedError,
    ScheduleNotFoundError,
    ScheduleViewError,
)
from noonbell.notify import Channels, NotificationDispatcher, Rules
from noonbell.ports import Clock, Ledger, MakeEdit, ScheduleChange, ScheduleFilter
from noonbell.schedules import arguments, changes, warnings
from noonbell.schedules.dead_letters import DeadLetters
from noonbell.schedules.fields import Changes, Fields, check_team
from noonbell.schedules.lane_runner import LaneRunner
from noonbell.schedules.pace import batches
from noonbell.schedules.quiet_hours import QuietHoursEdits, no_quiet_hours
from noonbell.schedules.schedule_queries import Reading
from noonbell.schedules.schedule_records import Schedule, schedule_record
from noonbell.store.opening import open_store

if TYPE_CHECKING:
    from noonbell.timeline import RedisTimeline, TimelineStore

logger = logging.getLogger("noonbell.schedules")

Progress = Callable[[int, int], None]

_BREATH: Final = 500


class Schedules(Reading, QuietHoursEdits, DeadLetters):
    """Durable schedules of one store, and an engine of one lane of them.

    With `team` it sees those of the team alone, and creates into it; without, it sees all of them, and creates into the
    team "default" where the fields name no other. The engine runs what is due whatever team it belongs to.
    """

    def __init__(
        self,
        store: str | Ledger,
        *,
        clock: Clock | None = None,
        callbacks: Mapping[str, Callable[[Call], Any]] | None = None,
        targets: Mapping[str, TargetLike] | None = None,
        commands: bool | Collection[str] = False,
        secrets: Secrets | KeyRing | None = None,
        lane: str = "default",
        managed_by: str = "api",
        actor: str = "api",
        team: str | None = None,
        longest_wait: timedelta = timedelta(seconds=5),
        retention: timedelta | None = None,
        egress: Egress | None = None,
        http_limits: HttpLimits | None = None,
        threads: int | None = None,
        public_url: str | None = None,
        apprise: bool = False,
        timeline: str | RedisTimeline | None = None,
    ) -> None:
        opened = open_store(store)
        arguments.check_waits(longest_wait, retention)
        arguments.check_limits(http_limits, threads)
        arguments.check_names(lane=lane, managed_by=managed_by, actor=actor)
        arguments.check_callbacks(callbacks)
        arguments.check_commands(commands)
        arguments.check_parts(clock, targets, secrets, egress, public_url)
        self._clock = clock_for(opened) if clock is None else clock
        self._timeline: TimelineStore | None = None
        if timeline is not None:
            from noonbell.timeline import with_timeline  # noqa: PLC0415 - where there is one

            opened = self._timeline = with_timeline(opened, timeline, self._clock)
        self._store = opened
        self._owns_store = isinstance(store, str)
        self._actor = actor
        self._team = None if team is None else check_team(team)
        self._is_view = False
        self._as_seen: tuple[int, datetime] | None = None
        self._secrets = arguments.secrets_of(secrets, opened, self._clock, actor)
        self._actions = Actions(
            self._clock, callbacks=callbacks, targets=targets, commands=commands, secrets=self._secrets, egress=egress,
            http_limits=http_limits,
        )  # fmt: skip
        self._lane = LaneRunner(
            self._store, self._clock, lane, self._actions, longest_wait_us=longest_wait // MICROSECOND,
            retention_us=None if retention is None else retention // MICROSECOND, threads=threads,
            desk=self._opened_desk(opened, lane, egress, public_url, apprise=apprise),
        )  # fmt: skip
        self._managed_by = managed_by

    def _opened_desk(
        self, opened: Ledger, lane: str, egress: Egress | None, public_url: str | None, *, apprise: bool
    ) -> NotificationDispatcher:
        desk = NotificationDispatcher(
            opened, self._clock, lane=lane, egress=egress, secrets=self._secrets, public_url=public_url, apprise=apprise
        )
        self._channels = Channels(
            opened, self._clock, secrets=self._secrets, egress=egress, actor=self._actor, apprise=apprise,
            on_change=desk.wake,
        )  # fmt: skip
        self._rules = Rules(opened, self._clock, actor=self._actor, on_change=desk.wake)
        return desk

    # --- views for an actor ---------------------------------------------------------------------------------------

    def acting(self, actor: str, team: str | None) -> Schedules:
        """Return a view of the same schedules for an actor: the audit names the actor, and only its team's things are
        seen.

        Without a team it sees all. A view costs nothing; it has no engine of its own, and neither starts nor stops the
        one there is. What belongs to one team cannot be widened to another.
        """
        arguments.check_names(actor=actor)
        if self._team is not None and team != self._team:
            raise ScheduleViewError(f"acting(team={team!r})", f'it is of the team "{self._team}" alone')
        return self._view(_actor=actor, _team=None if team is None else check_team(team))

    def reading_from(self, store: Ledger) -> Schedules:
        """A view that reads from a snapshot: what it shows is what the store held at one moment."""
        return self._view(_store=store)

    def unchanged_since(self, seen: Schedule) -> Schedules:
        """A view that changes or deletes a schedule only as it was seen; raises ScheduleChangedError where it is not.

        Its edits count, not its runs.
        """
        return self._view(_as_seen=(seen.epoch, seen.updated_at))

    def _view(self, **bound: Any) -> Schedules:
        """The same services with another actor, team or store: nothing but references is copied."""
        view = object.__new__(Schedules)
        vars(view).update(vars(self), _is_view=True, **bound)
        return view

    @property
    def secrets(self) -> Secrets:
        """The secrets, in the name of the same actor."""
        return self._secrets.acting(self._actor) if self._is_view else self._secrets

    @property
    def channels(self) -> Channels:
        """The channels of notifications, in the name of the same actor."""
        return self._channels.acting(self._actor) if self._is_view else self._channels

    @property
    def rules(self) -> Rules:
        """The rules of notifications, in the name of the same actor."""
        return self._rules.acting(self._actor) if self._is_view else self._rules

    @property
    def team(self) -> str | None:
        """The team whose schedules are seen; None: those of all."""
        return self._team

    def _require_whole(self, asked: str) -> None:
        if self._is_view:
            raise ScheduleViewError(asked, "the engine and the store belong to the Schedules that it was made of")

    def _seen(self, edit: MakeEdit) -> MakeEdit:
        """The same edit; a schedule of another team is as one that is not there."""

        def seen(stored: StoredSchedule) -> Edit | None:
            if self._team not in (None, stored.team):
                raise ScheduleNotFoundError("schedule", stored.schedule_id)
            if self._as_seen is not None and self._as_seen != (stored.epoch, moment(stored.updated_at)):
                raise ScheduleChangedError(stored.schedule_id)
            return edit(stored)

        return seen

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the store; an open one stays as it is."""
        self._require_whole("open()")
        await self._store.open()

    def close(self) -> Coroutine[Any, Any, None]:
        """Stop the engine, and close the store where it was given as an address.

        Raises:
            StopFromTaskError: a run of these schedules called it; a plain function gets it from the call itself.
        """
        self._lane.require_other_thread("close")
        return self._close()

    async def _close(self) -> None:
        self._require_whole("close()")
        self._lane.require_other_task("close")
        await self.stop()
        if self._owns_store:
            await self._store.close()
        elif self._timeline is not None:
            await self._timeline.timeline.close()

    # --- the engine -----------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Return whether an engine looks after the lane here; not so while one that was taken for dead comes back."""
        return self._lane.engine is not None

    @property
    def instance(self) -> str | None:
        """The name of the engine that runs here; each start has another."""
        return self._lane.instance

    @property
    def metrics(self) -> dict[str, Any] | None:
        """The metrics of the running engine; None where none runs."""
        engine = self._lane.engine
        return None if engine is None else engine.metrics.summary() | {"deliveries": self._actions.deliveries}

    @property
    def timeline(self) -> dict[str, int] | None:
        """The counters of the timeline in front of the store; None without a timeline."""
        counters = getattr(self._store, "counters", None)
        return None if counters is None else counters.summary()

    @property
    def lanes_lost(self) -> int:
        """Return how often the engine here was taken for dead by another, and came back under a new name."""
        return self._lane.lost

    def register(self, name: str, callback: Callable[[Call], Any]) -> None:
        """Let actions call this function by name; it is given a Call."""
        self._require_whole("register()")
        arguments.check_callback(name, callback)
        self._actions.callbacks[name] = callback

    async def start(self) -> None:
        """Run what is due in the lane, from now on."""
        self._require_whole("start()")
        await self._store.open()
        await self._lane.start()

    def stop(self, timeout: timedelta | None = None) -> Coroutine[Any, Any, bool]:
        """Begin nothing new, wait for what runs, and leave the lane.

        The engine stays a part of it until then, also where a caller stops waiting; a further call waits for the same
        stop. The runs of other engines of the lane are not touched.

        With a timeout, runs that have not ended by then are cut off (False): they are cancelled, and queued again under
        the same run id for an engine that is free; those that must not be repeated, or that a person asked for, end as
        `unknown`. A plain function cannot be cancelled and goes on in its thread, while its run may begin again
        elsewhere: so end the process next.

        Raises:
            StopFromTaskError: a run of these schedules called it; a plain function gets it from the call itself.
        """
        self._lane.require_other_thread("stop")
        return self._stop(timeout)

    async def _stop(self, timeout: timedelta | None) -> bool:  # noqa: ASYNC109 - the time that is given is the contract
        self._require_whole("stop()")
        self._lane.require_other_task("stop")
        return await self._lane.stop(None if timeout is None else max(timeout // timedelta(microseconds=1), 0))

    # --- creating -------------------------------------------------------------------------------------------------

    async def create(self, **fields: Unpack[Fields]) -> Schedule:
        """Create a schedule; its first occurrence is the first one after now."""
        now = self._clock.now()
        new, understood = self._creator(now).new(fields)
        self._require_allowed([new])
        await self._require_quiet_hours([new])
        await warnings.log_missing_secrets(self._secrets, [new])
        await self._store.schedules.apply(ScheduleChange([new], now, self._actor))
        self._wake(new.next_run_at)
        (stored,) = await self._store.schedules.find(ScheduleFilter(schedule_ids=[new.schedule_id]))
        return self._with_callback_logged(schedule_record(stored, understood, await self._warnings([stored])))

    async def create_many(self, many: Iterable[Fields], *, progress: Progress | None = None) -> list[str]:
        """Create schedules in batches, each whole or not at all; returns their ids, in order.

        All are checked before the first is written: an error of one has its `index`. Where a name or an id turns out to
        be taken in the store, the batches before it stay, and the error says how many are `written`. `progress` is
        called with how many are written, and of how many.
        """
        arguments.require_many(many, progress)
        now = self._clock.now()
        made: list[DurableSchedule] = []
        creator = self._creator(now)
        doubles = arguments.DuplicateCheck()
        for index, fields in enumerate(many):
            try:
                arguments.require_mapping("", fields)
                made.append(creator.new(fields)[0])
                doubles.add(index, made[-1])
            except NoonbellError as error:
                raise arguments.at_entry(error, index) from error.__cause__
            if len(made) % _BREATH == 0:
                await asyncio.sleep(0)  # others share this event loop
        self._require_allowed(made)
        await self._require_quiet_hours(made)
        await warnings.log_missing_secrets(self._secrets, made)
        async for batch, done in batches(made, self._clock):
            with arguments.counting_written(done - len(batch), len(made)):
                await self._store.schedules.apply(ScheduleChange(batch, now, self._actor))
            self._wake(min((new.next_run_at for new in batch if new.next_run_at is not None), default=None))
            if any(new.columns.type == "one_shot" or '"message"' in new.columns.definition for new in batch):
                found = await self._store.schedules.find(
                    ScheduleFilter(schedule_ids=[new.schedule_id for new in batch])
                )
                warnings.log(await self._warnings(found))
            if progress is not None:
                progress(done, len(made))
        self._log_unknown_callbacks(made)
        return [new.schedule_id for new in made]

    def _creator(self, now: int) -> changes.ScheduleFactory:
        return changes.ScheduleFactory(now, managed_by=self._managed_by, lane=self._lane.name, only_team=self._team)

    def require_allowed(self, action: Mapping[str, Any]) -> None:
        """Raise CommandsOffError where an action is a command that the operator does not allow here."""
        self._actions.require(action)

    def _require_allowed(self, made: Iterable[DurableSchedule]) -> None:
        for definition in {new.columns.definition for new in made}:
            self._actions.require(definition_of(definition).action)

    async def _warnings(self, found: Sequence[StoredSchedule]) -> tuple[str, ...]:
        targets, delivers = self._actions.targets, self._lane.engine is not None
        return await warnings.of_schedules(self._store, found, targets, self._clock.now(), delivers=delivers)

    async def _require_quiet_hours(self, made: Iterable[DurableSchedule]) -> None:
        wanted = {(new.columns.quiet_hours_policy_id or "", new.team) for new in made}
        wanted = {one for one in wanted if one[0]}
        if wanted:
            known = {(policy.policy_id, policy.team) for policy in await self._store.schedules.quiet_hours()}
            for policy_id, _ in sorted(wanted - known):
                raise no_quiet_hours(policy_id)

    # --- changing -------------------------------------------------------------------------------------------------

    async def update(self, schedule_id: str, /, **fields: Unpack[Changes]) -> Schedule:
        """Change fields of a schedule; what was due before is decided by what held before."""
        change = await self._change([schedule_id], fields)
        stored = await self._find(schedule_id)
        return schedule_record(stored, change.understood, await self._warnings([stored]))

    async def update_many(
        self, schedule_ids: Sequence[str], fields: Changes, *, progress: Progress | None = None
    ) -> None:
        """Change the same fields of many, in batches, each whole or not at all."""
        arguments.require_ids(schedule_ids)
        arguments.require_mapping("fields", fields)
        arguments.require_progress(progress)
        async for batch, done in batches(schedule_ids, self._clock):
            with arguments.counting_written(done - len(batch), len(schedule_ids)):
                await self._change(batch, fields)
            if progress is not None:
                progress(done, len(schedule_ids))

    async def pause(self, schedule_id: str) -> Schedule:
        """Pause a schedule: until it is resumed it has no occurrences. What was due before is still decided."""
        return await self.update(schedule_id, enabled=False)

    async def resume(self, schedule_id: str) -> Schedule:
        return await self.update(schedule_id, enabled=True)

    async def _change(self, schedule_ids: Sequence[str], fields: Changes) -> changes.EditBuilder:
        for schedule_id in schedule_ids:
            arguments.require_id("schedule", schedule_id)
        policy_id = fields.get("quiet_hours_policy_id")
        of_team: str | None = None
        if isinstance(policy_id, str):
            policies = await self._store.schedules.quiet_hours(policy_id)
            if not policies:
                raise no_quiet_hours(policy_id)
            of_team = policies[0].team
        polls = await self._polls()
        change = changes.EditBuilder(fields, self._clock.now(), polls, self._actor, notifier=await self._notifier())
        if "action" in fields:
            action = check_action(fields["action"])
            self._actions.require(action)
            await warnings.log_missing(self._secrets, self._team or DEFAULT_TEAM, action)

        def edit(stored: StoredSchedule) -> Edit | None:
            if of_team not in (None, stored.team):
                raise no_quiet_hours(str(policy_id))
            return change(stored)

        await self._store.schedules.apply(ScheduleChange(edited=schedule_ids, edit=self._seen(edit)))
        self._wake_after(change)
        return change

    async def delete(self, schedule_id: str) -> None:
        """Delete a schedule. Its history stays; its signing keys go.

        A run that executes ends as abandoned: the engine cancels it, or leaves it to end where it is a plain function.
        """
        arguments.require_id("schedule", schedule_id)
        now, actor = self._clock.now(), self._actor
        gone: list[int] = []

        def edit(stored: StoredSchedule) -> Edit:
            gone.append(stored.sid)
            return changes.deleted(stored, now, actor)

        await self._store.schedules.apply(ScheduleChange(edited=[schedule_id], edit=self._seen(edit)))
        if self._lane.engine is not None:
            for sid in gone:
                self._lane.engine.deleted(sid)

    async def trigger(
        self, schedule_id: str, *, via: TriggerSource = "manual", asked_at: datetime | None = None, queue: bool = False,
        retry: bool = True,
    ) -> str:  # fmt: skip
        """Run it now, beside its occurrences; returns the id of the run. `via` says how it was asked for.

        `asked_at` is when, by default now: the run is for that instant, and so is the audit event. It is queued, and an
        engine of the schedule's lane starts it: at once where that is this one, at its next look where it is another.
        Refused while a run is under way, unless the schedule's overlap is `allow`; with `queue` it starts when what is
        under way has ended. It is retried by the schedule's policy, unless `retry` is False.
        """
        arguments.require_id("schedule", schedule_id)
        arguments.require_trigger(via, queue=queue, retry=retry)
        if self._team is not None:
            await self._find(schedule_id)  # a schedule stays with its team, so this holds below
        at = self._clock.now() if asked_at is None else arguments.instant("asked_at", asked_at)
        run_for = await self._store.runs.ask(schedule_id, at, self._actor, via, queue=queue, retry=retry)
        if run_for is None:
            raise ScheduleBusyError(schedule_id, queued=MOST_ASKED if queue else None)
        self._wake(AT_ONCE)
        await self._log_no_engine(schedule_id)
        return run_id(schedule_id, "manual", run_for)

    # --- messages -------------------------------------------------------------------------------------------------

    def deliver_to(self, name: str, target: TargetLike) -> None:
        """Let messages reach this target by name: a function, a RedisStream, an HttpEndpoint."""
        self._require_whole("deliver_to()")
        self._actions.deliver_to(name, target)
