"""Warnings about schedules that were accepted and will not do what they were probably made for.

- A message to a target that no process is known to deliver to: its messages become dead letters. Known are the targets
  of this process and those that the live engines of the schedule's lane publish. Where nothing is known, because no
  engine is up and this process delivers nothing, there is no warning: a target may be declared later.
- A one-shot inside its quiet hours: it is skipped, and comes no more.
- A secret that does not exist; this one is logged alone.

They are returned with the schedule (`Schedule.warnings`) or the quiet hours, and logged where nothing is returned.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from noonbell.actions.callback import moment
from noonbell.actions.secrets.secrets import Secrets
from noonbell.core.records import DurableSchedule, StoredSchedule
from noonbell.core.turns import definition_of, quiet_hours_of, timing_of
from noonbell.ports import ScheduleFilter, ScheduleStore

logger = logging.getLogger("noonbell.schedules")

_MOST_LOOKED_AT: Final = 1_000
_MOST_NAMED: Final = 10


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
    store: ScheduleStore, found: Iterable[StoredSchedule], targets: Collection[str], now: int, *, delivers: bool
) -> tuple[str, ...]:
    """The warnings about these. `targets` are those of this process, which `delivers` or not."""
    warnings: list[str] = []
    known: dict[str, set[str] | None] = {}
    for stored in found:
        action = definition_of(stored.columns.definition).action
        if action.get("kind") == "message":
            if stored.lane not in known:
                known[stored.lane] = await _known_targets(store, stored.lane, targets, now, delivers=delivers)
            if (warning := _undeclared(stored, str(action.get("to", "default")), known[stored.lane])) is not None:
                warnings.append(warning)
        if (warning := quiet_one_shot(stored)) is not None:
            warnings.append(warning)
    return tuple(warnings)


async def of_quiet_hours(store: ScheduleStore, policy_id: str) -> tuple[str, ...]:
    """The warnings about one-shots that quiet hours cover."""
    wanted = ScheduleFilter(quiet_hours_policy_id=policy_id, type="one_shot", enabled=True)
    found = await store.list_schedules(wanted, 0, _MOST_LOOKED_AT)
    return tuple(warning for stored in found if (warning := quiet_one_shot(stored)) is not None)


def log(warnings: Sequence[str]) -> None:
    for warning in warnings[:_MOST_NAMED]:
        logger.warning("%s", warning)
    if len(warnings) > _MOST_NAMED:
        logger.warning("warnings of the same kinds about more schedules count=%d", len(warnings) - _MOST_NAMED)


async def _known_targets(
    store: ScheduleStore, lane: str, own: Collection[str], now: int, *, delivers: bool
) -> set[str] | None:
    """The names of the targets that messages of a lane reach; None where nothing is known of them."""
    published = [one.load["targets"] for one in await store.engines(now) if one.lane == lane and "targets" in one.load]
    if not published and not own and not delivers:
        return None
    return {*own, *(str(name) for names in published for name in names)}


def _undeclared(stored: StoredSchedule, target: str, known: set[str] | None) -> str | None:
    if known is None or target in known:
        return None
    declared = ", ".join(sorted(known)) or "none"
    return (
        f'No target named "{target}" is declared in the lane "{stored.lane}" (declared: {declared}): the messages of '
        f'"{stored.columns.name}" become dead letters; declare the target, or change "to"'
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
    """Secrets come and go by themselves, so one that is missing now is no error; a slip of the pen is likelier."""
    if missing := await secrets.missing(team, tree):
        logger.warning("There is no secret %s, and a schedule refers to it; its runs will fail", ", ".join(missing))
