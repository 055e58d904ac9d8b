"""The fields in which two versions of a schedule differ, as a person would write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from noonbell.core.records import ScheduleColumns
from noonbell.core.turns import definition_of
from noonbell.schedules.fields import shown
from noonbell.timing.timing_protocol import SECOND

_DEEPEST: Final = 3
_SPEC_KEYS: Final = {"cron": "cron", "interval": "every", "one_shot": "at"}
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field with its two values; None where it has none. Values inside objects have dotted names."""

    field: str
    before: Any
    after: Any


def differences(
    before: ScheduleColumns, after: ScheduleColumns, *, was_enabled: bool, enabled: bool
) -> list[FieldChange]:
    """Every field that differs, in the order in which files are written."""
    old = dict(_flat("", _described(before, enabled=was_enabled), 0))
    new = dict(_flat("", _described(after, enabled=enabled), 0))
    keys = [key for key in dict.fromkeys([*new, *old]) if old.get(key) != new.get(key) or (key in old) != (key in new)]
    # an object that takes the place of nothing is listed by its members
    parents = {key.rpartition(".")[0] for key in keys}
    return [
        FieldChange(key, old.get(key), new.get(key))
        for key in keys
        if key not in parents or old.get(key) is not None or new.get(key) is not None
    ]


def _described(columns: ScheduleColumns, *, enabled: bool) -> dict[str, Any]:
    definition = definition_of(columns.definition)
    retry = definition.retry
    return {
        "name": columns.name,
        _SPEC_KEYS[columns.type]: every_text(int(columns.spec)) if columns.type == "interval" else columns.spec,
        "timezone": columns.timezone,
        "enabled": enabled,
        "catch_up_policy": columns.catch_up_policy,
        "catch_up_cap": definition.cap,
        "overlap": definition.overlap,
        "retry": {
            "attempts": retry.attempts,
            "delay_seconds": retry.delay_us / SECOND,
            "strategy": retry.strategy,
            "max_delay_seconds": None if retry.max_delay_us is None else retry.max_delay_us / SECOND,
            "jitter": retry.jitter,
        },
        "retry_vs_new": definition.retry_vs_new,
        "dst": definition.dst,
        "start_at": None if definition.start_at is None else shown(definition.start_at),
        "end_at": None if definition.end_at is None else shown(definition.end_at),
        "jitter_seconds": definition.jitter_us / SECOND,
        "at_most_once": definition.at_most_once,
        "quiet_hours_policy_id": columns.quiet_hours_policy_id,
        "tags": list(definition.tags),
        "action": definition.action,
        "payload": None if columns.payload is None else msgspec.json.decode(columns.payload),
    }


def _flat(prefix: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value and depth < _DEEPEST:
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner, depth + 1)
    else:
        yield prefix, value


def every_text(seconds: int) -> str:
    """An interval in its largest whole unit: `15m`."""
    for size, unit in _UNITS:
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
