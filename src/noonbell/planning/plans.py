"""Plans: the creations, changes and deletions of a file in a store, with their effect on the coming weeks.

Only schedules whose owner is the file are compared, and only quiet hours whose id begins with the owner. Nothing is
written. A plan remembers the epoch of each schedule it has seen; `apply` refuses where one has moved on.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from noonbell.core.records import DEFAULT_TEAM, QuietHoursPolicy, ScheduleColumns, StoredSchedule
from noonbell.core.turns import quiet_hours_of, timing_of
from noonbell.errors import ScheduleFileInvalidError, ScheduleInvalidError
from noonbell.planning.differences import FieldChange, differences
from noonbell.planning.moves import Fires, FiringWindow, moves
from noonbell.planning.places import NOTHING, Problem
from noonbell.planning.schedule_file import DeclaredSchedule, ScheduleFile
from noonbell.ports import Ledger, ScheduleFilter
from noonbell.schedules.fields import first_anchor, keeps_anchor, moved_by, require_future

Kind = Literal["create", "change", "delete"]

_PAGE: Final = 1_000
# Comparing the fires of one schedule takes milliseconds, and with many at once the lines are not read one by one.
MOST_COMPARED: Final = 500
_TIMED: Final = frozenset(
    ["cron", "every", "at", "timezone", "enabled", "dst", "start_at", "end_at", "quiet_hours_policy_id", "quiet_hours"]
)


@dataclass(frozen=True, slots=True)
class Item:
    """The change of one schedule, or of quiet hours. `words` describe its effect on the coming weeks."""

    kind: Kind
    id: str
    name: str
    changes: tuple[FieldChange, ...] = ()
    words: tuple[str, ...] = ()
    understood: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A stored schedule as the plan has found it."""

    epoch: int
    enabled: bool
    lane: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A file against a store at an instant. Empty: the store is as the file says."""

    file: ScheduleFile
    made_at: int
    schedules: tuple[Item, ...]
    quiet_hours: tuple[Item, ...]
    unchanged: int
    seen: Mapping[str, Seen]
    enabled: Mapping[str, bool]  # of each declared schedule, as it will be
    policies: Mapping[str, QuietHoursPolicy]  # the quiet hours of the team, as they were
    team: str = DEFAULT_TEAM

    @property
    def empty(self) -> bool:
        return not (self.schedules or self.quiet_hours)

    @property
    def deleted(self) -> list[str]:
        return [item.id for item in (*self.schedules, *self.quiet_hours) if item.kind == "delete"]

    def ids(self, kind: Kind) -> list[str]:
        return [item.id for item in self.schedules if item.kind == kind]

    @property
    def fingerprint(self) -> str:
        """Equal for two plans exactly when they go from the same state of the store to the same file."""
        facts = [self.file.fingerprint, sorted((key, seen.epoch, seen.enabled) for key, seen in self.seen.items())]
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        plain: dict[str, Any] = msgspec.to_builtins(self.facts())
        return plain

    def facts(self) -> dict[str, Any]:
        """The plan as a mapping, its items as they are: `msgspec.json.encode` takes it."""
        return {
            "name": self.file.name,
            "managed_by": self.file.owner,
            "fingerprint": self.fingerprint,
            "empty": self.empty,
            "created": len(self.ids("create")),
            "changed": len(self.ids("change")),
            "deleted": len(self.ids("delete")),
            "unchanged": self.unchanged,
            "schedules": self.schedules,
            "quiet_hours": self.quiet_hours,
        }


class Compared(NamedTuple):
    """The part of a plan that takes time to compute."""

    schedules: tuple[Item, ...]
    quiet_hours: tuple[Item, ...]
    unchanged: int
    enabled: Mapping[str, bool]


async def plan(
    store: Ledger,
    file: ScheduleFile,
    *,
    now: int,
    team: str = DEFAULT_TEAM,
    compute: Callable[[Callable[[], Compared]], Awaitable[Compared]] = asyncio.to_thread,
) -> Plan:
    """Compare a file with an open store, where its schedules belong to `team`.

    `compute` runs the comparison, which takes seconds for a large file: in a thread by default.
    Raises ScheduleFileInvalidError where it cannot be applied to this store.
    """
    stored = {one.schedule_id: one for one in await owned(store, file.owner, team)}
    new = [key for key in file.schedules if key not in stored]
    others = await store.schedules.find(ScheduleFilter(schedule_ids=new)) if new else []
    taken = {one.schedule_id: one.managed_by if one.team == team else "another team" for one in others}
    removed = ScheduleFilter(managed_by=file.owner, schedule_ids=new, deleted=True)
    gone = {one.schedule_id for one in await store.schedules.find(removed)} if new else set()
    policies = {policy.policy_id: policy for policy in await store.schedules.quiet_hours()}
    own = {key: one for key, one in policies.items() if one.team == team}
    making = _Making(file, stored, own, now)
    making.refuse_ids(taken, gone)
    making.refuse_quiet_hours({key for key, one in policies.items() if one.team != team})
    for policy_id in making.dropped:
        users = await store.schedules.find(ScheduleFilter(quiet_hours_policy_id=policy_id), 0, _PAGE)
        making.refuse_users(policy_id, [one for one in users if one.managed_by != file.owner])
    compared = await compute(making.compared)
    seen = {key: Seen(one.epoch, one.enabled, one.lane) for key, one in stored.items()}
    return Plan(
        file, now, compared.schedules, compared.quiet_hours, compared.unchanged, seen, compared.enabled, own, team
    )


async def owned(store: Ledger, owner: str, team: str) -> list[StoredSchedule]:
    """Every schedule of an owner in a team."""
    found: list[StoredSchedule] = []
    while True:
        after = found[-1].sid if found else 0
        page = await store.schedules.find(ScheduleFilter(managed_by=owner, team=team), after, _PAGE)
        found += page
        if len(page) < _PAGE:
            return found


class _Making:
    def __init__(
        self,
        file: ScheduleFile,
        stored: Mapping[str, StoredSchedule],
        policies: Mapping[str, QuietHoursPolicy],
        now: int,
    ) -> None:
        self._file = file
        self._stored = stored
        self._policies = policies
        self._now = now
        self._compared = 0
        self._problems: list[Problem] = []
        own = [policy_id for policy_id in policies if policy_id.startswith(f"{file.owner}:")]
        self.dropped = [policy_id for policy_id in own if policy_id not in file.quiet_hours]

    # --- what the store does not allow ----------------------------------------------------------------------------

    def refuse_ids(self, taken: Mapping[str, str], gone: set[str]) -> None:
        for key in self._file.schedules:
            if key in taken:
                self._complain(("schedules", key), f"belongs to {taken[key]}; choose another id", key=True)
            elif key in gone and key not in self._stored:
                reason = f"was deleted, and an id is never used again; choose another, such as {key}-2"
                self._complain(("schedules", key), reason, key=True)

    def refuse_quiet_hours(self, taken: set[str]) -> None:
        for foreign in sorted(taken & self._file.quiet_hours.keys()):
            short = foreign.removeprefix(f"{self._file.owner}:")
            self._complain(("quiet_hours", short), "belong to another team; name them differently", key=True)
        known = {*self._file.quiet_hours, *self._policies} - {*self.dropped}
        for key, declared in self._file.schedules.items():
            policy_id = declared.columns.quiet_hours_policy_id
            if policy_id is not None and policy_id not in known:
                reason = "names no quiet hours, in this file or in the store"
                self._complain(("schedules", key, "quiet_hours_policy_id"), reason, value=policy_id)

    def refuse_users(self, policy_id: str, users: list[StoredSchedule]) -> None:
        if users:
            short = policy_id.removeprefix(f"{self._file.owner}:")
            reason = f"is used by {users[0].schedule_id} of {users[0].managed_by}; keep it, or change that first"
            self._complain(("quiet_hours", short), reason)

    def _complain(self, path: tuple[str | int, ...], reason: str, *, value: Any = NOTHING, key: bool = False) -> None:
        self._problems.append(self._file.document.problem(path, value, reason, key=key))

    # --- the items ------------------------------------------------------------------------------------------------

    def compared(self) -> Compared:
        """Compare everything. Takes seconds for a large file, and may run in another process."""
        items: list[Item] = []
        enabled: dict[str, bool] = {}
        for key, declared in self._file.schedules.items():
            stored = self._stored.get(key)
            enabled[key] = declared.enabled and not (stored and _has_had_its_time(stored, declared, self._now))
            item = self._created(declared) if stored is None else self._changed(stored, declared, enabled=enabled[key])
            if item is not None:
                items.append(item)
        for key, stored in self._stored.items():
            if key not in self._file.schedules:
                items.append(
                    Item(
                        "delete", key, stored.columns.name, words=self._words(self._stored_fires(stored), None, stored)
                    )
                )
        unchanged = len(self._file.schedules) - sum(item.kind != "delete" for item in items)
        quiet = tuple(self._quiet_items())
        if self._problems:
            raise ScheduleFileInvalidError(sorted(self._problems, key=lambda one: (one.line, one.column)))
        return Compared(tuple(items), quiet, unchanged, enabled)

    def _created(self, declared: DeclaredSchedule) -> Item | None:
        columns = declared.columns
        timing = timing_of(columns, first_anchor(columns, self._now))
        try:
            require_future(columns, timing, self._now)
        except ScheduleInvalidError as error:
            self._spec_problem(declared, error)
            return None
        after = self._planned_fires(timing, columns) if declared.enabled else None
        words = self._compare(None, after, columns) if declared.enabled else ("it is created paused",)
        return Item("create", declared.schedule_id, columns.name, words=words, understood=declared.understood)

    def _changed(self, stored: StoredSchedule, declared: DeclaredSchedule, *, enabled: bool) -> Item | None:
        before, after = stored.columns, declared.columns
        if before.type != after.type:
            error = ScheduleInvalidError("type", after.type, f"cannot be changed from {before.type}; choose another id")
            self._spec_problem(declared, error)
            return None
        found = differences(before, after, was_enabled=stored.enabled, enabled=enabled)
        if not any(change.field == "quiet_hours_policy_id" for change in found):
            found += self._windows_changed(after.quiet_hours_policy_id)
        if not found:
            return None
        goes_on = keeps_anchor(before, after, self._now)
        timing = timing_of(after, stored.anchor_at if goes_on else first_anchor(after, self._now))
        moved = moved_by(before, after)
        if enabled and (moved is not None or not stored.enabled):
            try:
                require_future(after, timing, self._now, moved or "spec")
            except ScheduleInvalidError as error:
                self._spec_problem(declared, error)
                return None
        words: tuple[str, ...] = ()
        if any(change.field in _TIMED for change in found):
            words = self._words(
                self._stored_fires(stored), self._planned_fires(timing, after) if enabled else None, stored, after
            )
        return Item("change", stored.schedule_id, after.name, tuple(found), words, declared.understood)

    def _windows_changed(self, policy_id: str | None) -> list[FieldChange]:
        declared, known = self._file.quiet_hours.get(policy_id or ""), self._policies.get(policy_id or "")
        if declared is None or known is None or same_windows(declared.document, known.document):
            return []
        return [FieldChange("quiet_hours", _windows(known.document), _windows(declared.document))]

    def _spec_problem(self, declared: DeclaredSchedule, error: ScheduleInvalidError) -> None:
        written = self._file.document.values["schedules"][declared.schedule_id]
        path: tuple[str, ...] = ("schedules", declared.schedule_id, error.field)
        if error.field not in written:
            given = next((key for key in ("cron", "every", "at", "type", "spec") if key in written), "spec")
            path = ("schedules", declared.schedule_id, given)
            if error.field in self._file.document.values.get("defaults", {}):
                path = ("defaults", error.field)
        self._problems.append(self._file.document.problem(path, error.value, error.reason))

    def _quiet_items(self) -> list[Item]:
        items: list[Item] = []
        for policy_id, declared in self._file.quiet_hours.items():
            known = self._policies.get(policy_id)
            if known is None:
                windows = FieldChange("windows", [], _windows(declared.document))
                items.append(Item("create", policy_id, declared.name, (windows,)))
                continue
            found = []
            if known.name != declared.name:
                found.append(FieldChange("name", known.name, declared.name))
            if not same_windows(known.document, declared.document):
                found.append(FieldChange("windows", _windows(known.document), _windows(declared.document)))
            if found:
                items.append(Item("change", policy_id, declared.name, tuple(found)))
        return [*items, *(Item("delete", policy_id, self._policies[policy_id].name) for policy_id in self.dropped)]

    # --- what fires -----------------------------------------------------------------------------------------------

    def _stored_fires(self, stored: StoredSchedule) -> Fires | None:
        """Return the fires of the schedule as it is stored."""
        if not stored.enabled:
            return None
        timing = timing_of(stored.columns, stored.anchor_at)
        return timing if stored.quiet is None else FiringWindow(timing, quiet_hours_of(stored.quiet))

    def _planned_fires(self, timing: Any, columns: ScheduleColumns) -> Fires:
        """Return the fires of a timing outside of its quiet hours, as the file or else the store has them."""
        policy_id = columns.quiet_hours_policy_id
        if policy_id is None:
            return timing  # type: ignore[no-any-return]  # every Timing is Fires
        policy = self._file.quiet_hours.get(policy_id) or self._policies.get(policy_id)
        return FiringWindow(timing, quiet_hours_of(None if policy is None else policy.document))

    def _words(
        self, before: Fires | None, after: Fires | None, stored: StoredSchedule, columns: ScheduleColumns | None = None
    ) -> tuple[str, ...]:
        if before is None and after is None:
            return ("it stays paused",) if columns is not None else ("it was paused",)
        return self._compare(before, after, columns or stored.columns, stored.columns)

    def _compare(
        self, before: Fires | None, after: Fires | None, columns: ScheduleColumns, was: ScheduleColumns | None = None
    ) -> tuple[str, ...]:
        self._compared += 1
        if self._compared > MOST_COMPARED:
            return ()
        found = moves(before, after, zone=ZoneInfo(columns.timezone), now=self._now, others=self._zones(columns, was))
        return found.words

    def _zones(self, *versions: ScheduleColumns | None) -> list[tzinfo]:
        """The zones of all versions of a schedule and of their quiet hours."""
        found: dict[tzinfo, None] = {}
        for columns in versions:
            if columns is None:
                continue
            found[ZoneInfo(columns.timezone)] = None
            for policies in (self._policies, self._file.quiet_hours):
                policy = policies.get(columns.quiet_hours_policy_id or "")
                windows = () if policy is None else quiet_hours_of(policy.document).windows
                found |= dict.fromkeys(window.zone for window in windows)
        return list(found)


def _has_had_its_time(stored: StoredSchedule, declared: DeclaredSchedule, now: int) -> bool:
    """A one-shot that has fired, or was missed, disables itself; the file that declares it is still fulfilled."""
    if stored.columns.type != "one_shot" or stored.enabled:
        return False
    same = (stored.columns.spec, stored.columns.timezone) == (declared.columns.spec, declared.columns.timezone)
    return same and timing_of(stored.columns, None).following(now) is None


def same_windows(one: str, other: str) -> bool:
    return quiet_hours_of(one) == quiet_hours_of(other)


def _windows(document: str) -> Any:
    return msgspec.json.decode(document)["windows"]
