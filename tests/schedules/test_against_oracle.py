"""Random schedules, edits, pauses, downtimes and crashes: each occurrence has one verdict, and it is the oracle's."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from noonbell.ledger import verify_store
from tests.effort import examples
from tests.schedules.conftest import ACTION, IN_EARNEST, World, store_maker
from tests.schedules.oracle import Oracle
from tests.store.postgres_server import PostgresServer

T0 = 1_772_618_400  # 2026-03-04 10:00 UTC
EVERY_DAY = list(range(7))


class Case(NamedTuple):
    kind: str
    number: int
    zone: str
    catch_up: str
    cap: int
    quiet: tuple[int, int]
    silenced: bool
    steps: list[tuple[str, Any]]


def spec_of(kind: str, number: int) -> dict[str, Any]:
    if kind == "minutes":
        return {"type": "cron", "spec": f"*/{number} * * * *"}
    if kind == "daily":
        return {"type": "cron", "spec": f"15 {number} * * *"}
    if kind == "interval":
        return {"type": "interval", "spec": str(number)}
    return {"type": "one_shot", "spec": datetime.fromtimestamp(number, UTC).isoformat()}


def windows(quiet: tuple[int, int]) -> list[dict[str, Any]]:
    begin, end = quiet
    return [{"weekdays": EVERY_DAY, "from": f"{begin:02}:00", "to": f"{end:02}:00", "timezone": "UTC"}]


@st.composite
def cases(draw: st.DrawFn, longest: int = 1500) -> Case:
    kind = draw(st.sampled_from(["minutes", "minutes", "daily", "interval", "once"]))
    numbers = {
        "minutes": st.sampled_from([1, 5, 15, 30]),
        "daily": st.integers(0, 23),
        "interval": st.sampled_from([90, 300, 3600, 5400]),
        "once": st.integers(1, 2000).map(lambda halves: T0 + halves * 30 * 60),
    }
    quiets = st.tuples(st.integers(0, 23), st.integers(0, 23)).filter(lambda pair: pair[0] != pair[1])
    half_minutes = st.one_of(st.integers(1, 10), st.integers(5, longest // 12), st.integers(longest // 15, longest))
    edit = st.one_of(
        st.tuples(st.sampled_from(["pause", "resume", "silence", "unsilence"]), st.none()),
        st.tuples(st.just("spec"), numbers[kind]),
        st.tuples(st.just("catch_up"), st.sampled_from(["skip", "run_once", "run_all_capped"])),
        st.tuples(st.just("windows"), quiets),
    )
    steps: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(1, 4))):
        # up for a while, down for a while, up again; edits anywhere between
        steps.append(("pass", draw(half_minutes)))
        steps.extend(draw(st.lists(edit, max_size=1)))
        down = draw(st.sampled_from(["stop", "crash", "sleep"]))
        if down == "sleep":
            steps.append(("sleep", draw(st.integers(10, longest))))
        else:
            steps.extend([(down, None), ("pass", draw(half_minutes)), *draw(st.lists(edit, max_size=1))])
            steps.extend([("pass", draw(half_minutes)), ("start", None)])
        steps.extend(draw(st.lists(edit, max_size=1)))
        steps.append(("pass", draw(half_minutes)))
    return Case(
        kind,
        draw(numbers[kind]),
        draw(st.sampled_from(["UTC", "Europe/Kyiv", "Asia/Kathmandu"])),
        draw(st.sampled_from(["skip", "run_once", "run_all_capped"])),
        draw(st.integers(1, 5)),
        draw(quiets),
        draw(st.booleans()),
        steps,
    )


async def play(case: Case, world: World) -> None:
    await world.schedules.open()
    await world.schedules.create_quiet_hours("calm", windows(case.quiet), policy_id="q")
    zone = case.zone if case.kind in ("minutes", "daily") else "UTC"
    key = await world.create(
        **spec_of(case.kind, case.number), timezone=zone, catch_up_policy=case.catch_up, catch_up_cap=case.cap,
        quiet_hours_policy_id="q" if case.silenced else None, action=ACTION,
    )  # fmt: skip
    quiet = case.quiet
    oracle = Oracle(
        case.kind, case.number, case.catch_up, case.cap, T0, quiet if case.silenced else None, zone,
    )  # fmt: skip
    for name, value in [("start", None), *case.steps]:
        if name == "pass":
            await world.clock.advance(timedelta(seconds=30 * value))
            oracle.pass_time(30 * value)
        elif name == "sleep":
            await world.clock.jump(timedelta(seconds=30 * value))
            oracle.pass_time(30 * value, asleep=True)
        elif name == "start":
            if not world.schedules.running:
                await world.schedules.start()
                await world.clock.settle()
                oracle.start()
        elif name in ("stop", "crash"):
            await (world.crash() if name == "crash" else world.schedules.stop())
            oracle.stop()
        elif name == "windows":
            quiet = value
            await world.schedules.update_quiet_hours("q", windows=windows(value))
            if oracle.quiet is not None:
                oracle.close()
                oracle.quiet = value
        else:
            await edit(world, oracle, key, name, value, quiet)
        await world.clock.settle()
    await judge(world, oracle, key)


async def edit(world: World, oracle: Oracle, key: str, name: str, value: Any, quiet: tuple[int, int]) -> None:
    if oracle.kind == "once" and (oracle.number <= oracle.now or name == "spec"):
        return  # it is over, or about to be refused
    changes: dict[str, dict[str, Any]] = {
        "pause": {"enabled": False},
        "resume": {"enabled": True},
        "silence": {"quiet_hours_policy_id": "q"},
        "unsilence": {"quiet_hours_policy_id": None},
        "spec": spec_of(oracle.kind, value) if name == "spec" else {},
        "catch_up": {"catch_up_policy": value},
    }
    before = await world.schedules.get(key)
    after = await world.schedules.update(key, **changes[name])
    if after.epoch == before.epoch:
        return
    oracle.close()
    if name in ("pause", "resume"):
        oracle.enabled = name == "resume"
    elif name in ("silence", "unsilence"):
        oracle.quiet = quiet if name == "silence" else None
    elif name == "spec":
        oracle.number = value
    else:
        oracle.catch_up = value


async def judge(world: World, oracle: Oracle, key: str) -> None:
    found: dict[int, str] = {}
    cursor: str | None = None
    start = datetime.fromtimestamp(T0, UTC)
    while True:
        page = await world.schedules.occurrences(key, start=start, cursor=cursor, limit=1000)
        for one in page.items:
            at = int(one.scheduled_for.timestamp())
            assert at not in found
            if one.verdict != "pending":
                told = f"{one.verdict} {one.reason}" if one.verdict in ("skipped", "missed") else one.verdict
                found[at] = told
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == oracle.verdicts | oracle.skipped_already()
    report = await verify_store(world.store)
    assert report.problems == []
    assert report.remarks == []
    assert report.occurrences == len(oracle.verdicts), "a quiet stretch is written when it is over"
    called = [int(call.scheduled_for.timestamp()) for call in world.calls]
    assert len(called) == len(set(called))
    fired = {at for at, verdict in found.items() if verdict == "fired"}
    assert set(called) <= fired
    if oracle.up and not oracle.is_quiet(oracle.now):
        assert set(called) == fired


def run(kind: str, case: Case, server: PostgresServer | None = None) -> None:
    async def whole() -> None:
        dsn = "" if server is None else await server.new_ledger()
        with tempfile.TemporaryDirectory() as folder:
            world = World(
                store_maker(kind, Path(folder), dsn), datetime.fromtimestamp(T0, UTC), longest_wait=IN_EARNEST
            )
            try:
                await play(case, world)
            finally:
                await world.schedules.stop()
                await world.store.close()

    asyncio.run(whole())


@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_every_occurrence_has_the_verdict_of_the_oracle_in_memory(case: Case) -> None:
    run("memory", case)


@settings(max_examples=examples(3), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(longest=400))
def test_every_occurrence_has_the_verdict_of_the_oracle_on_sqlite(case: Case) -> None:
    run("sqlite", case)


# An edit after a crash, and before the next start.
EDITED_WHILE_DOWN = Case(
    "minutes", 1, "UTC", "skip", 1, (17, 0), silenced=False,
    steps=[("pass", 5), ("crash", None), ("pass", 6), ("pause", None), ("pass", 1), ("start", None), ("pass", 1)],
)  # fmt: skip


@settings(max_examples=examples(2), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(case=EDITED_WHILE_DOWN)
@given(case=cases(longest=120))  # a look at a real server for each minute that passes
def test_every_occurrence_has_the_verdict_of_the_oracle_on_postgres(postgres: PostgresServer, case: Case) -> None:
    run("postgres", case, postgres)
