"""Stored tasks: what is believed, and the error that each kind of damage gets."""

from __future__ import annotations

from collections import UserDict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from noonbell.core.records import Declaration, LiveRun, NewSchedule, StoredSchedule, Turn
from noonbell.core.terms import declared_terms
from noonbell.core.turns import left_alone, look
from noonbell.declarative.registrations import Registration, validate
from noonbell.declarative.task_state import StoredTask, read_stored, read_task
from noonbell.errors import (
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskMissingFieldError,
    TaskTryDeserializeError,
)
from noonbell.store.sqlite import SqliteStore
from noonbell.timing import cron_timing

HOUR = 3_600_000_000
AT = 1_700_000_000_000_000
FIRST = -62_135_596_800_000_000  # 0001-01-01T00:00:00
LAST = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999
REQUIRED: dict[str, Any] = {"name": "t", "spec": "0 * * * *", "retry_delay_us": 5_000_000}
PLAIN: dict[str, Any] = {
    "sid": 7, "schedule_id": "s-7", "epoch": 3, "timezone": "Europe/Kyiv", "zone_hash": "abc", "cursor_at": AT,
    "created_at": AT - HOUR, "next_run_at": AT + HOUR, "last_attempt_at": AT - 3, "last_success_at": AT - 2,
    "last_failure_at": AT - 1,
}  # fmt: skip
LIVE: dict[str, Any] = {
    "run_for": AT, "fence": 2, "owner": "host-1", "state": "running", "attempt": 4, "wake_at": None,
    "started_at": AT + 1, "attempt_at": AT + 2, "crashes": 1, "cause": "retry", "live_kind": "scheduled",
    "live_epoch": 2,
}  # fmt: skip
NO_LIVE: dict[str, Any] = dict.fromkeys(LIVE)
MANUAL = LIVE | {"run_for": AT + 9, "live_kind": "manual", "cause": "manual", "attempt": 1, "live_epoch": 3}
INSTANTS = [
    "cursor_at", "created_at", "next_run_at", "last_attempt_at", "last_success_at", "last_failure_at", "run_for",
    "wake_at", "started_at", "attempt_at",
]  # fmt: skip
COUNTS = ["sid", "epoch", "fence", "attempt", "crashes", "live_epoch"]
TEXTS = ["schedule_id", "timezone", "zone_hash", "owner"]
CHOICES = ["state", "live_kind", "cause"]


def read(**fields: Any) -> StoredTask:
    return read_task(REQUIRED | fields, {"t"})


async def work() -> None: ...


def registered(*names: str, cron: str = "0 * * * *", seconds: int = 5) -> list[Registration]:
    items = [(name, cron, work, timedelta(seconds=seconds)) for name in names]
    return validate(items, poll_interval=timedelta(minutes=1))


# --- one record, strictly ---------------------------------------------------------------------------------------------


def test_three_fields_are_enough() -> None:
    assert read() == StoredTask(
        name="t", spec="0 * * * *", retry_delay_us=5_000_000, sid=0, schedule_id="", epoch=1, timezone=None,
        zone_hash=None, cursor_at=None, created_at=None, next_run_at=None, last_attempt_at=None, last_success_at=None,
        last_failure_at=None, live=None, manual=None, filled=False,
    )  # fmt: skip


def test_every_field_is_kept() -> None:
    found = read(**PLAIN, **LIVE)
    assert {field: getattr(found, field) for field in PLAIN} == PLAIN
    assert found.live == LiveRun(
        sid=7, kind="scheduled", run_for=AT, fence=2, owner="host-1", state="running", attempt=4, wake_at=None,
        started_at=AT + 1, attempt_at=AT + 2, crashes=1, epoch=2, cause="retry",
    )  # fmt: skip
    assert found.manual is None


def test_a_manual_run_is_kept_apart() -> None:
    found = read(**PLAIN, **MANUAL)
    assert found.live is None
    assert found.manual is not None
    assert (found.manual.kind, found.manual.cause, found.manual.run_for) == ("manual", "manual", AT + 9)


def test_a_live_run_by_hand_needs_its_occurrence_and_its_state() -> None:
    found = read(sid=7, epoch=3, run_for=AT, state="running").live
    assert found == LiveRun(7, "scheduled", AT, 1, None, "running", 1, None, None, None, 0, 3, "cron")
    for given, missing in (
        ({"run_for": AT}, "state"),
        ({"state": "queued"}, "run_for"),
        ({"live_kind": "manual"}, "run_for"),
    ):
        with pytest.raises(TaskMissingFieldError) as caught:
            read(**given)
        assert caught.value.field == missing


def test_columns_without_a_run_are_checked_and_make_none() -> None:
    assert read(owner="somebody", wake_at=AT).live is None


@pytest.mark.parametrize("record", [MappingProxyType(REQUIRED), UserDict(REQUIRED)], ids=["proxy", "user dict"])
def test_any_mapping_will_do(record: object) -> None:
    assert read_task(record, {"t"}).name == "t"


@pytest.mark.parametrize("record", [None, True, [], "x", 5, [("name", "t")], object()])
def test_what_is_no_record(record: object) -> None:
    with pytest.raises(TaskInvalidStructureError) as caught:
        read_task(record, {"t"})
    assert caught.value.details == {"value": record}
    assert isinstance(caught.value, TaskTryDeserializeError)


@pytest.mark.parametrize("field", list(REQUIRED))
def test_a_required_field_that_is_absent(field: str) -> None:
    record = {key: value for key, value in REQUIRED.items() if key != field}
    with pytest.raises(TaskMissingFieldError, match=f"^Missing required field: {field}$") as caught:
        read_task(record, {"t"})
    assert caught.value.details == {"field": field}


def test_the_first_missing_field_is_named() -> None:
    with pytest.raises(TaskMissingFieldError) as caught:
        read_task({}, {"t"})
    assert caught.value.field == "name"


WRONG_TYPES: dict[str, tuple[str, list[object]]] = {
    "name": ("str", [None, 123, b"t", ["t"], {"t": 1}]),
    "spec": ("str", [None, 123, [], b"0 * * * *"]),
    "retry_delay_us": ("int", [None, "5", True, 5.0, []]),
    **{field: ("int", ["2024", True, 1.5, {}]) for field in INSTANTS + COUNTS},
    **{field: ("str", [5, True, b"x", []]) for field in TEXTS + CHOICES},
}


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [(field, value, expected) for field, (expected, values) in WRONG_TYPES.items() for value in values],
)
def test_a_field_of_the_wrong_type(field: str, value: object, expected: str) -> None:
    actual = "None" if value is None else type(value).__name__
    with pytest.raises(TaskInvalidTypeError) as caught:
        read(**(PLAIN | LIVE | {field: value}))
    assert str(caught.value) == f"Invalid type for field '{field}': expected {expected}, got {actual}"
    assert caught.value.details == {"field": field, "value": value, "expectedType": expected, "actualType": actual}


@pytest.mark.parametrize("field", INSTANTS + COUNTS + TEXTS + CHOICES)
def test_a_wrong_type_is_found_without_the_rest_of_the_row(field: str) -> None:
    with pytest.raises(TaskInvalidTypeError) as caught:
        read(**{field: {}})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("name", "unknown", "no task of this name is registered"),
        ("spec", "60 * * * *", "minute field "),
        ("spec", "@daily", "expression field "),
        ("spec", "", "expression field is empty"),
        ("retry_delay_us", -1, "must not be negative"),
        *((field, value, "lies outside the years 1 to 9999") for field in INSTANTS for value in (FIRST - 1, LAST + 1)),
        *((field, -1, "must not be negative") for field in COUNTS),
        ("state", "sleeping", "must be one of queued, running, waiting"),
        ("state", "", "must be one of queued, running, waiting"),
        ("live_kind", "other", "must be one of scheduled, manual"),
        ("cause", "whim", "must be one of cron, retry, orphan, manual"),
    ],
)
def test_a_field_with_an_impossible_value(field: str, value: object, reason: str) -> None:
    with pytest.raises(TaskInvalidValueError) as caught:
        read(**(PLAIN | LIVE | {field: value}))
    assert str(caught.value).startswith(f"Invalid value for field '{field}': {reason}")
    assert (caught.value.details["field"], caught.value.details["value"]) == (field, value)
    assert str(caught.value.details["reason"]).startswith(reason)


def test_a_spec_that_does_not_parse_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(TaskInvalidValueError) as caught:
            read(spec="* * * * 7")
        assert caught.value.__cause__ is not None


@pytest.mark.parametrize("at", [FIRST, -1, 0, LAST])
def test_every_instant_of_the_calendar_is_one(at: int) -> None:
    found = read(**(PLAIN | LIVE | dict.fromkeys(INSTANTS, at)))
    assert found.live is not None
    assert (found.created_at, found.live.run_for, found.live.wake_at) == (at, at, at)
    assert found.cursor_at == at


def test_the_ends_of_the_calendar_are_those_of_datetime() -> None:
    epoch, step = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
    assert (datetime.min.replace(tzinfo=UTC) - epoch) // step == FIRST
    assert (datetime.max.replace(tzinfo=UTC) - epoch) // step == LAST


# --- the rows of a store, as `initialize` reads them ------------------------------------------------------------------


def row(name: object = "t", **fields: Any) -> dict[str, Any]:
    return REQUIRED | PLAIN | NO_LIVE | {"name": name} | fields


def test_registered_rows_are_read_and_others_set_aside_unread() -> None:
    ruined = row("gone", sid=8, spec=5, cursor_at="x", state="?", retry_delay_us=-1)
    stored = read_stored([row(), ruined], registered("t", "new"))
    assert list(stored.tasks) == ["t"]
    assert stored.tasks["t"] == read(**PLAIN)
    assert stored.gone == [ruined]


def test_a_forgotten_task_with_two_runs_is_one() -> None:
    stored = read_stored([row("gone") | LIVE, row("gone") | MANUAL], registered("t"))
    assert [(found["name"], found["sid"]) for found in stored.gone] == [("gone", 7)]


@pytest.mark.parametrize("absent", [True, False], ids=["absent", "null"])
def test_a_missing_expression_or_delay_is_that_of_the_registration(absent: bool) -> None:
    for field, value in (("spec", "5 4 * * *"), ("retry_delay_us", 60_000_000)):
        record = row(**{field: None})
        if absent:
            del record[field]
        found = read_stored([record], registered("t", cron="5 4 * * *", seconds=60)).tasks["t"]
        assert getattr(found, field) == value
        assert found.filled
    assert not read_stored([row()], registered("t")).tasks["t"].filled


def test_a_changed_declaration_leaves_what_is_stored() -> None:
    found = read_stored([row()], registered("t", cron="5 4 * * *", seconds=60)).tasks["t"]
    assert (found.spec, found.retry_delay_us, found.filled) == ("0 * * * *", 5_000_000, False)


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({"name": None}, TaskInvalidTypeError, "name"),
        ({"name": 123}, TaskInvalidTypeError, "name"),
        ({"sid": None}, TaskInvalidTypeError, "sid"),
        ({"sid": "7"}, TaskInvalidTypeError, "sid"),
        ({"spec": 5}, TaskInvalidTypeError, "spec"),
        ({"spec": "@daily"}, TaskInvalidValueError, "spec"),
        ({"retry_delay_us": "5"}, TaskInvalidTypeError, "retry_delay_us"),
        ({"retry_delay_us": -5}, TaskInvalidValueError, "retry_delay_us"),
        ({"last_success_at": "yesterday"}, TaskInvalidTypeError, "last_success_at"),
        ({"cursor_at": LAST + 1}, TaskInvalidValueError, "cursor_at"),
        (LIVE | {"wake_at": "soon"}, TaskInvalidTypeError, "wake_at"),
        (LIVE | {"owner": 5}, TaskInvalidTypeError, "owner"),
        (LIVE | {"state": "lost"}, TaskInvalidValueError, "state"),
    ],
)
def test_every_other_damage_raises(fields: dict[str, Any], error: type[TaskTryDeserializeError], field: str) -> None:
    with pytest.raises(error) as caught:
        read_stored([row("gone", sid=1), row() | fields], registered("t"))
    assert caught.value.details["field"] == field


def test_a_row_without_its_key_names_it() -> None:
    for field in ("name", "sid"):
        record = row()
        del record[field]
        with pytest.raises(TaskMissingFieldError) as caught:
            read_stored([record], registered("t"))
        assert caught.value.field == field


def test_a_row_that_is_none() -> None:
    with pytest.raises(TaskInvalidStructureError):
        read_stored([None], registered("t"))


@pytest.mark.parametrize("manual_first", [True, False])
def test_a_scheduled_and_a_manual_run_of_one_task_are_merged(manual_first: bool) -> None:
    rows = [row() | MANUAL, row() | LIVE] if manual_first else [row() | LIVE, row() | MANUAL]
    found = read_stored(rows, registered("t")).tasks["t"]
    assert found.live is not None
    assert found.manual is not None
    assert (found.live.run_for, found.live.kind) == (AT, "scheduled")
    assert (found.manual.run_for, found.manual.kind) == (AT + 9, "manual")


@pytest.mark.parametrize("live", [LIVE, MANUAL], ids=["scheduled", "manual"])
def test_two_live_runs_of_one_kind_are_damage(live: dict[str, Any]) -> None:
    with pytest.raises(TaskInvalidValueError, match="run in progress of one task") as caught:
        read_stored([row() | live, row() | live | {"run_for": AT + 60}], registered("t"))
    assert (caught.value.field, caught.value.details["value"]) == ("run_for", AT + 60)


@pytest.mark.parametrize(
    "second", [row(sid=8), row(), row(sid=8) | MANUAL], ids=["other sid", "same row", "other with run"]
)
def test_a_name_that_is_stored_twice_is_damage(second: dict[str, Any]) -> None:
    with pytest.raises(TaskInvalidValueError, match="is stored twice") as caught:
        read_stored([row(), second], registered("t"))
    assert caught.value.field == "name"


# --- what a real store writes is read back ----------------------------------------------------------------------------


async def test_what_sqlite_holds_is_believed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "ledger.db", threaded=False)
    await store.open()
    timing = cron_timing("0 * * * *", UTC)
    now = AT // HOUR * HOUR + 5
    created = [
        NewSchedule(f"id-{name}", name, "cron", "0 * * * *", "UTC", "hash", "{}", 5_000_000, now - 6, now - 5)
        for name in ("t", "u")
    ]
    await store.schedules.declare(Declaration("scheduler:x", now, created, [], [], [], [], []))

    def only_t(stored: StoredSchedule) -> Turn:
        if stored.sid == 1:
            return look(stored, now, terms=declared_terms(timing, "preempt"))
        turn = left_alone(stored)
        turn.next_run_at = now + HOUR
        return turn

    await store.runs.claim("scheduler:x", "me", now, 10, only_t)
    declared = await store.schedules.read_declared("scheduler:x")
    await store.close()
    stored = read_stored(declared.rows, registered("t"))
    found = stored.tasks["t"]
    assert (found.sid, found.schedule_id, found.spec, found.filled) == (1, "id-t", "0 * * * *", False)
    assert (found.timezone, found.zone_hash, found.cursor_at, found.next_run_at) == ("UTC", "hash", now, now - 5 + HOUR)
    assert found.live is not None
    assert (found.live.run_for, found.live.owner, found.live.state, found.live.sid) == (now - 5, "me", "running", 1)
    assert [gone["name"] for gone in stored.gone] == ["u"]
