"""What `Schedules` is given beside the right thing: each mistake is told by name, before anything is written."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from noonbell.errors import (
    NaiveDatetimeError,
    ScheduleExistsError,
    ScheduleInvalidError,
    ScheduleNotFoundError,
    SchedulerInUseError,
    StoreUnavailableError,
)
from noonbell.schedules import Schedules
from noonbell.schedules.pace import FIRST
from noonbell.store.memory import MemoryStore
from tests.schedules.conftest import ACTION, World, store_maker

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def _new(**fields: Any) -> dict[str, Any]:
    return {"type": "cron", "spec": "* * * * *", "action": ACTION, **fields}


@pytest.fixture
async def memory() -> Schedules:
    store = MemoryStore()
    await store.open()
    return Schedules(store)


@pytest.fixture
async def memory_world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(store_maker("memory", tmp_path))
    await made.schedules.open()
    yield made
    await made.store.close()


# --- the constructor --------------------------------------------------------------------------------------------------

SETTINGS: list[tuple[dict[str, Any], str, str]] = [
    ({"longest_wait": 5}, "longest_wait", "must be a timedelta, such as timedelta(seconds=5)"),
    ({"longest_wait": timedelta(0)}, "longest_wait", "longer than nothing"),
    ({"retention": 30}, "retention", "must be a timedelta, such as timedelta(days=30)"),
    ({"retention": timedelta(hours=3)}, "retention", "a day at least"),
    ({"commands": ["backup", 3]}, "commands", "3 must be the name of a program"),
    ({"commands": "backup"}, "commands", "must be True, False or a list of programs"),
    ({"callbacks": [print]}, "callbacks", "must be a dict of functions by name"),
    ({"callbacks": {"x": 3}}, "callbacks.x", "3 must be a function"),
    ({"callbacks": {3: print}}, "callbacks", "3 must be the name of a function"),
    ({"lane": ""}, "lane", "'' must be a text that is not blank"),
    ({"lane": 3}, "lane", "3 must be a text that is not blank"),
    ({"actor": ""}, "actor", "not blank"),
    ({"managed_by": " "}, "managed_by", "not blank"),
    ({"managed_by": "scheduler:default"}, "managed_by", "these names are reserved for declared tasks"),
    ({"managed_by": "periodic:jobs"}, "managed_by", "these names are reserved for declared tasks"),
    ({"lane": "scheduler:default"}, "lane", "these names are reserved for declared tasks"),
    ({"lane": "periodic:jobs"}, "lane", "these names are reserved for declared tasks"),
]


@pytest.mark.parametrize(("given", "field", "reason"), SETTINGS, ids=[f"{one[0]}" for one in SETTINGS])
def test_a_setting_that_makes_no_sense_is_refused_by_name(given: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(ScheduleInvalidError) as raised:
        Schedules("memory://", **given)
    assert raised.value.field == field
    assert reason in str(raised.value)


def test_a_callback_that_is_registered_later_is_looked_at_too() -> None:
    with pytest.raises(ScheduleInvalidError, match=r"callbacks\.report 'report' must be a function"):
        Schedules("memory://").register("report", "report")  # type: ignore[arg-type]  # the mistake


# --- arguments of calls -----------------------------------------------------------------------------------------------

Asking = Callable[[Schedules], Coroutine[Any, Any, Any]]
CALLS: list[tuple[str, Asking, str, str]] = [
    ("enabled", lambda s: s.list(enabled="yes"), "enabled", "'yes' must be True or False"),
    ("type", lambda s: s.list(type="x"), "type", "'x' must be one of cron, interval, one_shot"),
    ("tag", lambda s: s.list(tag=7), "tag", "7 must be text"),
    ("filter", lambda s: s.list(nmae="x"), "filter", "known are managed_by"),
    ("audit", lambda s: s.audit(start="2026-01-01"), "start", "must be an aware datetime"),  # type: ignore[arg-type]  # the mistake
    ("turned round", lambda s: s.audit(start=NOW, end=NOW - timedelta(1)), "start", "must not be after end"),
    ("many", lambda s: s.create_many(["x"]), "", "[0] 'x' must be a dict"),  # type: ignore[list-item]  # the mistake
    ("ids", lambda s: s.update_many("abc", {}), "schedule_ids", "'abc' must be a list of ids"),
    ("fields", lambda s: s.update_many(["a"], "x"), "fields", "'x' must be a dict"),  # type: ignore[arg-type]  # the mistake
]


@pytest.mark.parametrize(("ask", "field", "reason"), [one[1:] for one in CALLS], ids=[one[0] for one in CALLS])
async def test_an_argument_that_makes_no_sense_is_refused_by_name(
    memory: Schedules, ask: Asking, field: str, reason: str
) -> None:
    with pytest.raises(ScheduleInvalidError) as raised:
        await ask(memory)
    assert raised.value.field == field
    assert reason in str(raised.value)


async def test_times_without_a_zone_are_refused(memory: Schedules) -> None:
    with pytest.raises(NaiveDatetimeError):
        await memory.audit(start=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the mistake


async def test_an_argument_for_one_schedule_is_refused_by_name(world: World) -> None:
    key = await world.create()
    with pytest.raises(ScheduleInvalidError, match="count 0 must be a whole number from 1 to 1000"):
        await world.schedules.preview(key, count=0)
    with pytest.raises(ScheduleInvalidError, match=r"start .* must not be after end"):
        await world.schedules.occurrences(key, start=NOW, end=NOW - timedelta(days=1))
    with pytest.raises(ScheduleInvalidError, match="schedule_id 'other' cannot be changed"):
        await world.schedules.update(key, schedule_id="other")  # type: ignore[call-arg]  # the mistake


# --- fields -----------------------------------------------------------------------------------------------------------

FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "a\0b"}, "name", "must not hold a NUL character"),
    ({"end_at": "2026-03-01T00:00"}, "end_at", "is in the past: it is"),
    ({"timezone": "Kyiv"}, "timezone", "did you mean Europe/Kyiv?"),
    ({"timezone": "Mars/Olympus"}, "timezone", "such as Europe/Kyiv or UTC"),
    ({"timezone": 3}, "timezone", "such as Europe/Kyiv or UTC"),
    ({"type": []}, "type", "must be one of cron"),
    ({"type": "interval", "spec": timedelta(milliseconds=1500)}, "spec", "must be whole seconds"),
    ({"type": "interval", "spec": timedelta(0)}, "spec", "at least 1 second"),
    ({"type": "interval", "spec": "soon"}, "spec", "must be a whole number of seconds"),
    ({"type": "one_shot", "spec": datetime(2026, 3, 5)}, "spec", "has no time zone"),  # noqa: DTZ001 - the mistake
    ({"spec": timedelta(hours=1)}, "spec", "must be text"),
    ({"payload": {"a": [1, float("nan")]}}, "payload.a[1]", "nan is not a number that JSON can hold"),
    ({"payload": float("-inf")}, "payload", "-inf is not a number that JSON can hold"),
    ({"payload": {"a": {3: "x"}}}, "payload.a", "3 is a key, not text; in JSON it would become '3'"),
    ({"payload": {"at": NOW}}, "payload.at", "write it as text: value.isoformat()"),
    ({"payload": [timedelta(1)]}, "payload[0]", "value.total_seconds()"),
    ({"payload": {"price": Decimal(1)}}, "payload.price", "is of the type Decimal"),
    ({"payload": {"of": {1, 2}}}, "payload.of", "is of the type set"),
    ({"payload": {"text": "\ud800"}}, "payload.text", "UTF-8"),
    ({"payload": ["x" * 256 * 1024]}, "payload", "has 262,148 bytes as JSON, and at most 262,144 (256 KiB) are kept"),
]


@pytest.mark.parametrize(
    ("given", "field", "reason"), FIELDS, ids=[f"{number} {one[1]}" for number, one in enumerate(FIELDS)]
)
async def test_a_field_is_refused_by_its_place(
    memory: Schedules, given: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(ScheduleInvalidError) as raised:
        await memory.create(**_new(**given))
    assert raised.value.field == field
    assert reason in str(raised.value)


async def test_a_payload_within_itself_is_refused(memory: Schedules) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ScheduleInvalidError, match=r"payload .* is nested too deeply"):
        await memory.create(**_new(payload=endless))


async def test_a_payload_comes_back_as_it_was_given(memory: Schedules) -> None:
    given = {"text": "é\0", "number": 1.5, "large": (1 << 64) - 1, "none": None, "list": [True, {"deep": ()}]}
    made = await memory.create(**_new(payload=given))
    assert made.payload == {**given, "list": [True, {"deep": []}]}
    whole = await memory.create(**_new(payload="x" * (256 * 1024 - 2)))
    assert len(whole.payload) == 256 * 1024 - 2


async def test_what_is_missing_is_told_without_a_value(memory: Schedules) -> None:
    with pytest.raises(ScheduleInvalidError) as raised:
        await memory.create(type="cron", spec="* * * * *")
    assert str(raised.value) == "Invalid schedule: action is missing"


@pytest.mark.parametrize(
    ("written", "stored"),
    [(timedelta(minutes=15), "900"), ("90s", "90"), ("15m", "900"), ("2h", "7200"), ("1h 30m", "5400"), (45, "45")],
)
async def test_an_interval_may_have_a_unit_and_is_stored_in_seconds(world: World, written: Any, stored: str) -> None:
    made = await world.schedules.create(**_new(type="interval", spec=written))
    assert (made.spec, made.next_run_at) == (stored, made.created_at + timedelta(seconds=int(stored)))
    changed = await world.schedules.update(made.schedule_id, spec="1d")
    assert changed.spec == "86400"


async def test_a_one_shot_may_be_a_datetime(world: World) -> None:
    at = datetime(2026, 3, 5, 20, 0, 0, 250_000, tzinfo=ZoneInfo("Asia/Tokyo"))
    made = await world.schedules.create(**_new(type="one_shot", spec=at, timezone="Europe/Kyiv"))
    assert (made.spec, made.next_run_at) == ("2026-03-05T20:00:00.250000+09:00", at)


async def test_an_end_in_the_past_is_blamed_by_a_change_too(world: World) -> None:
    key = await world.create(end_at="2026-03-04T13:00")
    await world.minutes(90)
    with pytest.raises(ScheduleInvalidError, match=r"end_at '2026-03-04T13:00:00\+00:00' is in the past"):
        await world.schedules.update(key, spec="30 * * * *")


# --- many at once -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "field", "told"),
    [
        ({"spec": "61 * * * *"}, "spec", "[20].spec '61 * * * *' is not a valid cron spec"),
        ({"name": "3"}, "name", "[20].name '3' is also that of [3]"),
        ({"schedule_id": "id 3"}, "schedule_id", "[20].schedule_id 'id 3' is also that of [3]"),
    ],
)
async def test_an_error_of_many_has_its_index_and_nothing_is_written(
    world: World, bad: dict[str, Any], field: str, told: str
) -> None:
    many = [_new(name=str(number), schedule_id=f"id {number}") for number in range(30)]
    many[20] |= bad
    with pytest.raises(ScheduleInvalidError) as raised:
        await world.schedules.create_many(many)  # type: ignore[arg-type]  # dicts that are put together
    assert (raised.value.field, raised.value.index) == (field, 20)
    assert told in str(raised.value)
    assert pickle.loads(pickle.dumps(raised.value)).index == 20  # noqa: S301 - our own bytes
    assert (await world.schedules.list()).items == []


async def test_a_name_that_the_store_has_tells_how_many_are_written(world: World) -> None:
    await world.create(name="taken")
    many = [_new(name=f"{number}") for number in range(FIRST)] + [_new(name="taken")]
    with pytest.raises(ScheduleExistsError) as raised:
        await world.schedules.create_many(many)  # type: ignore[arg-type]  # as above
    assert (raised.value.field, raised.value.written) == ("name", FIRST)
    assert str(raised.value) == f'The name "taken" is taken; choose another; {FIRST} of {FIRST + 1} are written'
    copied = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - our own bytes
    assert (str(copied), copied.written) == (str(raised.value), FIRST)


async def test_a_change_of_many_tells_how_many_are_written(world: World) -> None:
    ids = await world.schedules.create_many(_new() for _ in range(FIRST))  # type: ignore[misc]  # as above
    with pytest.raises(ScheduleNotFoundError, match=rf'"nobody"; {FIRST} of {FIRST + 1} are written') as raised:
        await world.schedules.update_many([*ids, "nobody"], {"enabled": False})
    assert raised.value.details["written"] == FIRST


# --- ids, names, lanes ------------------------------------------------------------------------------------------------


async def test_the_id_of_a_deleted_schedule_is_told_as_such(world: World) -> None:
    await world.create(schedule_id="one")
    with pytest.raises(ScheduleExistsError, match='The schedule_id "one" is taken') as raised:
        await world.create(schedule_id="one")
    assert raised.value.deleted is False
    await world.schedules.delete("one")
    with pytest.raises(ScheduleExistsError, match="ids are never given twice") as raised:
        await world.create(schedule_id="one")
    assert raised.value.deleted is True


async def test_names_are_found_without_regard_to_ascii_capitals(world: World) -> None:
    for name in ("Nightly Report", "ÄRGER", "other"):
        await world.create(name=name)

    async def found(text: str) -> list[str]:
        return [one.name for one in (await world.schedules.list(name_contains=text)).items]

    assert await found("nIGHTLY r") == ["Nightly Report"]
    assert await found("Ärger") == ["ÄRGER"]
    assert await found("ärger") == []


async def test_beside_an_engine_that_shares_with_nobody_one_is_told_so(world: World) -> None:
    """Older versions held the lane itself."""
    hold = await world.store.hold("lane:default", "process 7 on host h")
    try:
        with pytest.raises(
            SchedulerInUseError, match=r'The lane "default" is held by process 7 .*older.*; stop it first'
        ):
            await world.schedules.start()
        assert not world.schedules.running
    finally:
        hold.release()
    await world.schedules.start()
    assert world.schedules.running


# --- what a first user tries ------------------------------------------------------------------------------------------

WINDOW = {"weekdays": [1], "from": "22:00", "to": "06:00", "timezone": "UTC"}
FIRST_TRIES: list[tuple[str, Asking, str, str]] = [
    ("a big cursor", lambda s: s.list(cursor=str(1 << 80)), "cursor", "must be the next_cursor of a page"),
    ("a cursor of letters", lambda s: s.dead_letters(cursor="zz"), "cursor", "must be the next_cursor of a page"),
    ("NUL", lambda s: s.list(name_contains="a\0b"), "name_contains", "without NUL characters"),
    ("half a character", lambda s: s.list(tag="\ud800"), "tag", "which UTF-8 can hold"),
    ("a subject", lambda s: s.audit(subject=3), "subject", "3 must be text"),  # type: ignore[arg-type]  # the mistake
    ("a number", lambda s: s.revive_dead_letters(3), "numbers", "must be a list"),  # type: ignore[arg-type]  # as above
    ("a large number", lambda s: s.drop_dead_letters([1 << 70]), "numbers", "whole numbers"),
    ("one of many", lambda s: s.create_many({"name": "x"}), "many", "must be a list of dicts"),  # type: ignore[dict-item]  # as above
    ("none of many", lambda s: s.create_many(None), "many", "must be a list of dicts"),  # type: ignore[arg-type]  # as above
    ("progress", lambda s: s.create_many([], progress=3), "progress", "must be a function"),  # type: ignore[arg-type]  # as above
    ("one window", lambda s: s.create_quiet_hours("n", WINDOW), "windows", "must be a list of windows"),  # type: ignore[arg-type]  # as above
    ("no name", lambda s: s.create_quiet_hours("", [WINDOW]), "name", "not blank"),
    ("a policy", lambda s: s.create_quiet_hours("n", [], policy_id=3), "policy_id", "3 must be a text"),  # type: ignore[arg-type]  # as above
    ("English", lambda s: s.create(**_new(spec="every day at 9")), "spec", "is not a valid cron spec: it has 4 parts"),
    ("seconds", lambda s: s.create(**_new(type="interval", spec=1.5)), "spec", "must be a whole number of seconds"),
]


@pytest.mark.parametrize(
    ("ask", "field", "reason"), [one[1:] for one in FIRST_TRIES], ids=[one[0] for one in FIRST_TRIES]
)
async def test_what_a_first_user_tries_is_answered(world: World, ask: Asking, field: str, reason: str) -> None:
    with pytest.raises(ScheduleInvalidError) as raised:
        await ask(world.schedules)
    assert raised.value.field == field
    assert reason in str(raised.value)


PARTS: list[tuple[dict[str, Any], str]] = [
    ({"targets": [print]}, "targets"),
    ({"secrets": "whatever"}, "secrets"),
    ({"clock": 3}, "clock"),
    ({"egress": "x"}, "egress"),
    ({"public_url": 3}, "public_url"),
]


@pytest.mark.parametrize(("given", "field"), PARTS, ids=[field for _, field in PARTS])
def test_a_part_that_is_none_is_refused_by_name(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ScheduleInvalidError) as raised:
        Schedules("memory://", **given)
    assert raised.value.field == field
    assert "whatever" not in str(raised.value), "what was meant as a secret is not shown"


@pytest.mark.parametrize("given", ["a\0b", "\ud800", 3, None])
async def test_what_no_id_can_be_is_not_found(world: World, given: Any) -> None:
    schedules = world.schedules
    for asked in (
        schedules.get(given),
        schedules.update(given, name="x"),
        schedules.update_many([given], {"name": "x"}),
        schedules.trigger(given),
        schedules.delete(given),
        schedules.runs(given),
        schedules.occurrences(given),
        schedules.get_quiet_hours(given),
        schedules.run(f"{given}:manual:1"),
    ):
        with pytest.raises(ScheduleNotFoundError) as raised:
            await asked
        assert str(raised.value).encode()


async def test_who_forgets_to_open_is_told_how(tmp_path: Path) -> None:
    for address in ("memory://", f"sqlite:///{tmp_path}/app.db"):
        with pytest.raises(StoreUnavailableError, match=r"is closed; open it first \(async with, or open\(\)\)"):
            await Schedules(address).create(**_new())


async def test_a_start_and_a_stop_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "noonbell.schedules")
    async with Schedules("memory://", lane="night") as schedules:
        await schedules.start()
    assert [record.getMessage().partition(" instance=")[0] for record in caplog.records] == [
        "engine started lane=night",
        "engine stopped lane=night",
    ]


# --- bounds in English ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "zone", "wanted"),
    [
        ("tomorrow at 9", "Europe/Kyiv", "2026-03-05T07:00:00+00:00"),
        ("1 april 2026", "Europe/Kyiv", "2026-03-31T21:00:00+00:00"),  # its midnight, in summer time
        ("in 2 hours", "Asia/Tokyo", "2026-03-04T14:00:30+00:00"),
        ("2026-03-05T09:30", "Asia/Tokyo", "2026-03-05T00:30:00+00:00"),
    ],
)
async def test_bounds_may_be_times_in_english(memory_world: World, typed: str, zone: str, wanted: str) -> None:
    key = await memory_world.create(start_at=typed, timezone=zone)
    made = await memory_world.schedules.get(key)
    assert made.start_at == datetime.fromisoformat(wanted)
    changed = await memory_world.schedules.update(key, start_at=None, end_at=typed)
    assert (changed.start_at, changed.end_at) == (None, datetime.fromisoformat(wanted))


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("soonish", "is not a time"),
        ("2026-13-01", "2026-13-01"),
        ("29 march 2026 at 3:30", "does not exist"),  # the clocks go forward over it in Kyiv
    ],
)
async def test_a_bound_that_is_not_a_time_is_refused(memory_world: World, typed: str, reason: str) -> None:
    with pytest.raises(ScheduleInvalidError) as raised:
        await memory_world.create(end_at=typed, timezone="Europe/Kyiv")
    assert (raised.value.field, raised.value.value) == ("end_at", typed)
    assert reason in str(raised.value)
