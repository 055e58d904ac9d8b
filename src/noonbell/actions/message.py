"""The `message` action: the schedule's payload, as an event, on its way to a target.

    {"kind": "message", "to": "orders", "type": "com.example.reminder"}

`to` names a target that the program registers, "default" if it is left out. The payload is the template of a
MessageEvent, an object. The event that is sent is the template with

- `source.channel` = "scheduler" and `source.connector_id` = the schedule's id, other keys of `source` kept;
- `id` (the id of the run) and `timestamp` (the occurrence), where the template has none;
- `{{scheduled_for}}`, `{{schedule_id}}`, `{{run_id}}` and `{{name}}` replaced inside texts.

It is the `data` of a CloudEvent 1.0 in JSON: `id` is the id of the run, `source` "/noonbell/schedules/<schedule id>",
`type` the action's or "noonbell.message", `subject` the schedule's name, `time` the occurrence. Extension attributes:
`kind` (scheduled or manual), `attempt` and `scheduledfor`.

A message run succeeds when its event is in the outbox; delivery is another matter (see `delivery`). Nothing here reads
a clock or does I/O: the same schedule and start give the same text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Final
from urllib.parse import quote

import msgspec

from noonbell.actions.checking import known_only, text
from noonbell.actions.secrets.references import loosely_named
from noonbell.core.ids import run_id
from noonbell.core.instants import moment
from noonbell.core.records import OutboxMessage, Start, StoredSchedule
from noonbell.core.turns import definition_of
from noonbell.errors import ScheduleInvalidError

EXAMPLE: Final = '{"kind": "message", "to": "orders"}'
DEFAULT_TARGET: Final = "default"
# What the names of channels begin with, which notices alone are sent to.
CHANNEL_PREFIX: Final = "channel:"
DEFAULT_TYPE: Final = "noonbell.message"
DEEPEST: Final = 50
PLACEHOLDERS: Final = ("scheduled_for", "schedule_id", "run_id", "name")

_PLACEHOLDER: Final = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_encode = msgspec.json.Encoder().encode


# --- checking ---------------------------------------------------------------------------------------------------------


def check_message(action: Mapping[str, Any]) -> dict[str, Any]:
    """The action in the form that is stored."""
    known_only(action, ("kind", "to", "type"), EXAMPLE)
    checked = {"kind": "message", "to": text("action.to", action.get("to", DEFAULT_TARGET))}
    if checked["to"].startswith(CHANNEL_PREFIX):
        right = 'must name a target, such as "orders"; channels are notified by rules, not by messages'
        raise ScheduleInvalidError("action.to", checked["to"], right)
    if action.get("type") is not None:
        checked["type"] = text("action.type", action["type"])
    return checked


def check_template(payload: str | None) -> None:
    """Refuse a payload that is not a template of a MessageEvent."""
    template = None if payload is None else msgspec.json.decode(payload)
    if not isinstance(template, dict):
        right = 'must be an object where the action is a message: its template, such as {"text": "Good morning"}'
        raise ScheduleInvalidError("payload", template, right)
    if not isinstance(template.get("source", {}), dict):
        raise ScheduleInvalidError("payload.source", template["source"], "must be an object; channel is set in it")
    if named := loosely_named(template):
        right = "refers to a secret, which a message must not hold: it is kept as it is sent, and goes to others"
        raise ScheduleInvalidError("payload", f"${{secrets.{min(named)}}}", right)
    for path, value in _texts("payload", template):
        for name in _PLACEHOLDER.findall(value):
            if name not in PLACEHOLDERS:
                known = ", ".join(f"{{{{{known}}}}}" for known in PLACEHOLDERS)
                raise ScheduleInvalidError(
                    path, value, f"has the placeholder {name!r}, which is not known; {known} are"
                )


def _texts(path: str, value: object, depth: int = 0) -> Iterator[tuple[str, str]]:
    if depth > DEEPEST:
        raise ScheduleInvalidError(path[:200], value, f"is nested more than {DEEPEST} deep")
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(f"{path}.{key}", inner, depth + 1)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _texts(f"{path}[{place}]", inner, depth + 1)


# --- making -----------------------------------------------------------------------------------------------------------

# What differs from run to run, in the order in which `message_of` hands it over.
_GAPS: Final = ("schedule_id", "address", "run_id", "name", "scheduled_for", "kind", "attempt")
_Fill = Callable[[tuple[str, ...]], tuple[str, ...]]


def message_of(stored: StoredSchedule, start: Start, now: int) -> OutboxMessage:
    """The message of a start, ready for the outbox."""
    columns, schedule_id, run_for = stored.columns, stored.schedule_id, start.run_for
    target, pieces, fill = _compiled(columns.definition, columns.payload)
    run = run_id(schedule_id, start.kind, run_for)
    # most ids are plain letters and digits, which are the same in JSON and in an address
    if schedule_id.isalnum() and schedule_id.isascii():
        escaped, address, escaped_run = schedule_id, schedule_id, run
    else:
        escaped, address, escaped_run = _escaped(schedule_id), quote(schedule_id, safe=""), _escaped(run)
    gaps = (
        escaped, address, escaped_run, _escaped(columns.name), _written(run_for), start.kind, str(start.attempt),
    )  # fmt: skip
    body = "".join(fill(gaps + pieces))
    return OutboxMessage(stored.sid, stored.lane, run, target, body, now, stored.team)


@lru_cache(maxsize=8_192)
def _written(at: int) -> str:
    return moment(at).isoformat().replace("+00:00", "Z")


def _escaped(value: str) -> str:
    """Return a text in its JSON form, without the quotes."""
    return _encode(value).decode()[1:-1]


@lru_cache(maxsize=65_536)
def _compiled(definition: str, payload: str | None) -> tuple[str, tuple[str, ...], _Fill]:
    """The target, the pieces of the event that stay the same, and what puts gaps and pieces in order."""
    action = definition_of(definition).action
    template = {} if payload is None else msgspec.json.decode(payload)
    source = template.get("source", {}) | {"channel": "scheduler", "connector_id": "{{schedule_id}}"}
    data = {"id": "{{run_id}}", "timestamp": "{{scheduled_for}}"} | template | {"source": source}
    attributes = {
        "id": "{{run_id}}",
        "source": "/noonbell/schedules/{{address}}",
        "subject": "{{name}}",
        "time": "{{scheduled_for}}",
        "datacontenttype": "application/json",
        "kind": "{{kind}}",
        "scheduledfor": "{{scheduled_for}}",
    }
    kind = _encode(action.get("type", DEFAULT_TYPE)).decode()
    head = f'{{"specversion":"1.0","type":{kind},"attempt":'
    event = (head, _GAPS.index("attempt"), ",", *_frame(attributes)[1:-1], ',"data":', *_frame(data), "}")
    pieces: list[str] = []
    order: list[int] = []
    for is_gap, run in groupby(event, lambda part: isinstance(part, int)):
        if is_gap:
            order.extend(run)  # type: ignore[arg-type]  # gaps are the numbers among the parts
        else:
            order.append(len(_GAPS) + len(pieces))
            pieces.append("".join(run))  # type: ignore[arg-type]  # and pieces the texts
    return action.get("to", DEFAULT_TARGET), tuple(pieces), itemgetter(*order)


def _frame(value: Any) -> list[str | int]:
    """JSON in parts: pieces of text, and the numbers of the gaps between them."""
    if isinstance(value, dict):
        inner = ([_encode(key).decode(), ":", *_frame(item)] for key, item in value.items())
        return ["{", *_joined(inner), "}"]
    if isinstance(value, list):
        return ["[", *_joined(map(_frame, value)), "]"]
    if not isinstance(value, str):
        return [_encode(value).decode()]
    # of what a split gives, every second is the name of a placeholder
    split = enumerate(_PLACEHOLDER.split(value))
    return ['"', *(_GAPS.index(part) if place % 2 else _escaped(part) for place, part in split), '"']


def _joined(parts: Iterable[list[str | int]]) -> Iterator[str | int]:
    for place, part in enumerate(parts):
        if place:
            yield ","
        yield from part
