"""Warnings about schedules that were accepted and will not do what they were probably made for.

- A message to a target that no process is known to deliver to: its messages become dead letters. Known are the targets
  of this process and those that the live engines of the schedule's lane publish. Where nothing is known, because no
  engine is up and this process delivers nothing, no warning is given: a target may be declared later.
- A one-shot inside its quiet hours: it is skipped, and comes no more.
- A lane without an engine, a callback that this process does not register, a command that it does not run: none is an
  error, because an engine may be started later, and another program may register the function.
- A secret that does not exist; this one is logged alone.

They are returned with the schedule (`Schedule.warnings`) or the quiet hours, and logged where nothing is returned. Of
many schedules each kind of warning is given once, with a count and a few names (`of_many`).
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from noonbell.actions.secrets.secrets import Secrets
from noonbell.core.instants import moment
from noonbell.core.presence import EngineRecord, lanes_up
from noonbell.core.records import DurableSchedule, ScheduleColumns, StoredSchedule
from noonbell.core.turns import definition_of, quiet_hours_of, timing_of
from noonbell.ports import Ledger, ScheduleFilter

logger = logging.getLogger("noonbell.schedules")

_MOST_LOOKED_AT: Final = 1_000
_MOST_NAMED: Final = 10
_FEW_NAMES: Final = 3
_LONGEST_NAME: Final = 60
_BATCH: Final = 500


class Here(NamedTuple):
    """The callbacks, targets and lane of this process; `callbacks` is None where it cannot know of them."""

    callbacks: Collection[str] | None = None
    targets: Collection[str] = ()
    delivers: bool = False
    runs_commands: bool = True


class Subject(NamedTuple):
    """A schedule as far as its warnings need it. `may_be_quiet`: a one-shot that has quiet hours."""

    schedule_id: str
    name: str
    lane: str
    action: Mapping[str, Any]
    may_be_quiet: bool

    @classmethod
    def of(cls, schedule_id: str, columns: ScheduleColumns, lane: str) -> Subject:
        may_be_quiet = columns.type == "one_shot" and columns.quiet_hours_policy_id is not None
        return cls(schedule_id, columns.name, lane, definition_of(columns.definition).action, may_be_quiet)


# --- texts ------------------------------------------------------------------------------------------------------------


def no_engine(lane: str) -> str:
    return f'No engine of the lane "{lane}" is up: runs start when one is started (noonbell serve, or noonbell worker).'


def unknown_callback(name: str) -> str:
    return f'No callback "{name}" is registered here: runs start only in an engine whose program registers it.'


def command_elsewhere(action: Mapping[str, Any]) -> str:
    argv = action.get("argv") or ["PROGRAM"]
    allow = "any" if "argv" not in action else argv[0]
    option = f"noonbell serve --command {shlex.quote(str(allow))}"
    return f"Commands run only in an engine that allows them: {option} (or noonbell worker)."


def quiet_one_shot(stored: StoredSchedule) -> str | None:
    """The warning where an enabled one-shot lies inside its quiet hours."""
    columns = stored.columns
    if columns.type != "one_shot" or not stored.enabled or stored.quiet is None:
        return None
    at = timing_of(columns, stored.anchor_at).following(stored.cursor_at)
    if at is None or quiet_hours_of(stored.quiet).quiet_until(at) is None:
        return None
    return (
        f'"{columns.name}" is for {moment(at).isoformat()}, inside its quiet hours '
        f'"{columns.quiet_hours_policy_id}": it is skipped and never runs; choose another time, or no quiet hours'
    )


async def of_schedules(
    store: Ledger, found: Iterable[StoredSchedule], targets: Collection[str], now: int, *, delivers: bool
) -> tuple[str, ...]:
    """The warnings about these. `targets` are those of this process, which `delivers` or not."""
    warnings: list[str] = []
    known: dict[str, set[str] | None] = {}
    for stored in found:
        action = definition_of(stored.columns.definition).action
        if action.get("kind") == "message":
            if stored.lane not in known:
                engines = (await store.engines.members(now)).alive
                known[stored.lane] = _known_targets(engines, stored.lane, targets, delivers=delivers)
            target = str(action.get("to", "default"))
            if (warning := _undeclared(stored.columns.name, stored.lane, target, known[stored.lane])) is not None:
                warnings.append(warning)
        if (warning := quiet_one_shot(stored)) is not None:
            warnings.append(warning)
    return tuple(warnings)


async def of_many(store: Ledger, subjects: Sequence[Subject], here: Here, now: int) -> tuple[str, ...]:
    """The warnings of a creation about many schedules: each kind once, with a count and a few names.

    One look at the engines; of the schedules only one-shots that have quiet hours are read.
    """
    if not subjects:
        return ()
    engines = (await store.engines.members(now)).alive
    up = lanes_up(engines)
    known = {
        lane: _known_targets(engines, lane, here.targets, delivers=here.delivers)
        for lane in {one.lane for one in subjects}
    }
    engine, callback, command, target, quiet = kinds = [_Kind() for _ in range(5)]
    for one in subjects:
        kind, named = one.action.get("kind"), str(one.action.get("name"))
        if kind == "message":
            to = str(one.action.get("to", "default"))
            if (warning := _undeclared(one.name, one.lane, to, known[one.lane])) is not None:
                target.add(one.name, f'target "{_short(to)}"', warning)
        elif kind == "callback" and here.callbacks is not None and named not in here.callbacks:
            callback.add(one.name, f'callback "{_short(named)}"', unknown_callback(named))
        elif kind == "command" and not here.runs_commands:
            command.add(one.name, "", command_elsewhere(one.action))
        if one.lane not in up:
            engine.add(one.name, f'lane "{_short(one.lane)}"', no_engine(one.lane))
    ids = [one.schedule_id for one in subjects if one.may_be_quiet]
    for start in range(0, len(ids), _BATCH):
        for stored in await store.schedules.find(ScheduleFilter(schedule_ids=ids[start : start + _BATCH])):
            if (warning := quiet_one_shot(stored)) is not None:
                quiet.add(stored.columns.name, "", warning)
    return tuple(kind.text() for kind in kinds if kind.count)


class _Kind:
    """Warnings of one kind: the first in full, the names of a few more, and how many there are."""

    def __init__(self) -> None:
        self.count = 0
        self._first = self._detail = ""
        self._more: list[str] = []

    def add(self, name: str, detail: str, warning: str) -> None:
        """Count a schedule; `detail` follows its name where it differs from that of the first."""
        self.count += 1
        if self.count == 1:
            self._first, self._detail = warning, detail
        elif len(self._more) < _FEW_NAMES:
            self._more.append(f'"{_short(name)}"' + (f" ({detail})" if detail != self._detail else ""))

    def text(self) -> str:
        if self.count == 1:
            return self._first
        others = self.count - 1 - len(self._more)
        names = ", ".join(self._more) + (f" and {others:,} others" if others else "")
        more = self.count - 1
        return f"{self._first.removesuffix('.')}. The same for {more:,} more schedule{'s' * (more > 1)}: {names}."


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…"


async def of_quiet_hours(store: Ledger, policy_id: str) -> tuple[str, ...]:
    """The warnings about one-shots that quiet hours cover."""
    wanted = ScheduleFilter(quiet_hours_policy_id=policy_id, type="one_shot", enabled=True)
    found = await store.schedules.find(wanted, 0, _MOST_LOOKED_AT)
    return tuple(warning for stored in found if (warning := quiet_one_shot(stored)) is not None)


def log(warnings: Sequence[str]) -> None:
    for warning in warnings[:_MOST_NAMED]:
        logger.warning("%s", warning)
    if len(warnings) > _MOST_NAMED:
        logger.warning("warnings of the same kinds about more schedules count=%d", len(warnings) - _MOST_NAMED)


def _known_targets(
    engines: Iterable[EngineRecord], lane: str, own: Collection[str], *, delivers: bool
) -> set[str] | None:
    """The names of the targets that messages of a lane reach; None where nothing is known of them."""
    published = [one.load["targets"] for one in engines if one.lane == lane and "targets" in one.load]
    if not published and not own and not delivers:
        return None
    return {*own, *(str(name) for names in published for name in names)}


def _undeclared(name: str, lane: str, target: str, known: set[str] | None) -> str | None:
    if known is None or target in known:
        return None
    declared = ", ".join(sorted(known)) or "none"
    return (
        f'No target named "{target}" is declared in the lane "{lane}" (declared: {declared}): the messages of '
        f'"{name}" become dead letters; declare the target, or change "to"'
    )


async def log_missing_secrets(secrets: Secrets, made: Iterable[DurableSchedule]) -> None:
    """Log the secrets that new schedules refer to and that do not exist."""
    naming: dict[str, set[str]] = {}
    for new in made:
        if "${secrets." in new.columns.definition:
            naming.setdefault(new.team, set()).add(new.columns.definition)
    for team, definitions in naming.items():
        await log_missing(secrets, team, list(definitions))


async def log_missing(secrets: Secrets, team: str, tree: Any) -> None:
    """Log the secrets that are missing. Secrets come and go by themselves, so that is a warning and not an error."""
    if missing := await secrets.missing(team, tree):
        logger.warning("Secret not found: %s; a schedule refers to it, and its runs will fail", ", ".join(missing))
