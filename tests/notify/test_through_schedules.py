"""From a run to a notice that arrived: rules on a real engine, channels on a real server, time on a manual clock."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from noonbell.core.records import OutboxMessage
from noonbell.errors import SchedulerInUseError
from noonbell.notify.dispatcher import ChannelTarget
from noonbell.notify.notice_records import Flush, Notice
from noonbell.ports import Ledger, ScheduleFilter
from noonbell.receive import Receiver
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from tests.notify.conftest import World, events
from tests.notify.servers import Hook
from tests.patience import PATIENCE_SECONDS
from tests.schedules.patience import PatientPostgres
from tests.store.postgres_server import PostgresServer

EVERYTHING = ["failed", "succeeded", "recovered"]


async def test_a_failure_is_told_with_its_facts(world: World) -> None:
    await world.channel()
    schedule_id = await world.schedule(tags=["nightly"])
    await world.schedules.rules.create(name="all", on=["failed"], channels=["ops"])
    world.plan = ["disk full"]
    await world.schedules.start()
    await world.minutes(1)
    (told,) = await world.told(1)
    assert told["type"] == "noonbell.failed"
    data = told["data"]
    assert (data["name"], data["subject_id"], data["tags"]) == ("backup", schedule_id, ["nightly"])
    assert data["title"] == "backup failed"
    assert data["error"] == "RuntimeError: disk full"
    assert data["scheduled_for"] == "2026-03-04T12:01:00Z"
    assert data["attempts"] == 1
    assert data["link"].startswith(f"https://cron.test/runs/{schedule_id}")


async def test_the_texts_of_a_rule_are_filled_with_the_facts_and_a_link_to_the_run(world: World) -> None:
    await world.channel()
    schedule_id = await world.schedule(tags=["nightly"])
    await world.schedules.rules.create(
        name="r", on=["failed"], channels=["ops"], title="{{name}} ({{tags}}): {{event}}",
        text="{{error}} after {{ attempts }} attempt, see {{link}}",
    )  # fmt: skip
    world.plan = ["disk {{link}} full"]
    await world.schedules.start()
    await world.minutes(1)
    (told,) = await world.told(1)
    run_id = told["data"]["run_id"]
    assert run_id.startswith(f"{schedule_id}:scheduled:")
    link = f"https://cron.test/runs/{quote(run_id, safe='')}"
    assert told["data"]["title"] == "backup (nightly): failed"
    assert told["data"]["text"] == f"RuntimeError: disk {{{{link}}}} full after 1 attempt, see {link}"
    assert (await world.schedules.run(run_id)).state == "failed", "the link leads to a run that can be read"


async def test_only_the_final_attempt_is_told(world: World) -> None:
    await world.channel()
    await world.schedule(spec="*/10 * * * *", retry={"attempts": 3, "delay_seconds": 10})
    await world.schedules.rules.create(name="all", on=EVERYTHING, channels=["ops"])
    world.plan = ["one", "two", "three", "again", None]
    await world.schedules.start()
    await world.minutes(11)
    (told,) = await world.told(1)
    assert (told["data"]["event"], told["data"]["attempts"]) == ("failed", 3)
    assert told["data"]["error"] == "RuntimeError: three"
    await world.minutes(10)  # fails once, and succeeds at its second attempt
    assert events(await world.told(2)) == ["failed", "recovered"]


async def test_recovered_is_told_only_after_a_failure(world: World) -> None:
    await world.channel()
    await world.schedule()
    await world.schedules.rules.create(name="r", on=["recovered"], channels=["ops"])
    world.plan = [None, None, "no", "no", None, None]
    await world.schedules.start()
    await world.minutes(6)
    (told,) = await world.told(1)
    assert told["data"]["event"] == "recovered"
    assert told["data"]["scheduled_for"] == "2026-03-04T12:05:00Z"
    assert told["data"]["title"] == "backup works again"
    await world.settled()
    assert len(world.hook.came) == 1


async def test_a_first_attempt_that_failed_is_no_failure_to_recover_from(world: World) -> None:
    await world.channel()
    await world.schedule(spec="*/10 * * * *", retry={"attempts": 2, "delay_seconds": 10})
    await world.schedules.rules.create(name="r", on=["recovered", "failed"], channels=["ops"])
    world.plan = [None, "no", None, None, "bad", "bad"]
    await world.schedules.start()
    await world.minutes(45)
    (told,) = await world.told(1)
    assert (told["data"]["event"], told["data"]["scheduled_for"]) == ("failed", "2026-03-04T12:40:00Z")


@pytest.mark.parametrize("failed_before", [True, False])
async def test_a_restart_between_two_attempts_does_not_forget_the_failure(world: World, failed_before: bool) -> None:
    await world.channel()
    await world.schedule(spec="*/10 * * * *", retry={"attempts": 2, "delay_seconds": 300})
    await world.schedules.rules.create(name="r", on=["recovered"], channels=["ops"])
    await world.schedules.rules.create(name="s", on=["succeeded"], channels=["ops"], window_seconds=0)
    world.plan = ["no", "no", "no"] if failed_before else [None, "no"]
    await world.schedules.start()
    await world.minutes(21)  # the run of 12:20 waits for its second attempt
    before = [] if failed_before else ["succeeded"]
    assert events(await world.told(len(before))) == before
    await world.schedules.stop()
    world.schedules = world.new()
    await world.schedules.start()
    await world.minutes(7)
    expected = [*before, "recovered" if failed_before else "succeeded"]
    assert events(await world.told(len(expected))) == expected


async def test_late_and_slow_have_thresholds(world: World) -> None:
    await world.channel()
    await world.schedule(spec="0 * * * *", catch_up_policy="run_once")
    await world.schedules.rules.create(
        name="r", on=["late", "slow"], channels=["ops"], late_seconds=300, slow_seconds=90
    )
    world.takes = timedelta(seconds=90)
    await world.schedules.start()
    await world.minutes(62)  # in time, and just not slow
    await world.stop()
    stopped = world.clock.at
    world.takes = timedelta(seconds=91)
    world.schedules = world.new()
    nominal = stopped.replace(minute=0, second=0) + timedelta(hours=1)
    await world.clock.advance(nominal + timedelta(minutes=10) - stopped)
    await world.schedules.start()
    await world.minutes(5)
    told = await world.told(2)
    assert events(told) == ["late", "slow"]
    assert told[0]["data"]["title"] == "backup began 10 min late"
    assert told[1]["data"]["title"] == "backup took 1 min 31 s"


async def test_missed_occurrences_are_told_with_their_count(world: World) -> None:
    await world.channel()
    await world.schedule(spec="0 * * * *")
    await world.schedules.rules.create(name="r", on=["missed"], channels=["ops"])
    await world.minutes(60 * 5 + 2)  # beyond the grace, within which an occurrence simply fires
    await world.schedules.start()
    await world.minutes(1)
    (told,) = await world.told(1)
    assert (told["data"]["event"], told["data"]["count"]) == ("missed", 5)
    assert told["data"]["title"] == "backup missed 5 occurrences"
    assert told["data"]["text"].startswith("Missed from 2026-03-04T13:00:00Z to 2026-03-04T17:00:00Z")


async def test_a_message_run_is_told_with_its_claim(world: World) -> None:
    await world.channel()
    await world.schedule(action={"kind": "message", "to": "inbox"}, payload={"text": "hello"})
    world.schedules.deliver_to("inbox", lambda event: None)
    await world.schedules.rules.create(name="r", on=["succeeded"], channels=["ops"])
    await world.schedules.start()
    await world.minutes(1)
    assert events(await world.told(1)) == ["succeeded"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [({"tag": "a"}, {"one"}), ({"tag": "b"}, {"one", "two"}), ({"schedule_id": "s2"}, {"two"}), ({}, {"one", "two"})],
)
async def test_a_rule_is_for_a_schedule_a_tag_or_the_team(
    world: World, rule: dict[str, str], expected: set[str]
) -> None:
    await world.channel()
    await world.schedule(name="one", schedule_id="s1", tags=["a", "b"])
    await world.schedule(name="two", schedule_id="s2", tags=["b"])
    await world.schedules.rules.create(name="r", on=["succeeded"], channels=["ops"], **rule)  # type: ignore[arg-type]  # the fields of the case
    await world.schedules.start()
    await world.minutes(1)
    told = await world.told(len(expected))
    assert {one["data"]["name"] for one in told} == expected


async def test_a_rule_that_is_made_or_off_counts_at_once(world: World) -> None:
    await world.channel()
    await world.schedule()
    await world.schedules.start()
    await world.minutes(1)
    rule = await world.schedules.rules.create(name="r", on=["succeeded"], channels=["ops"], window_seconds=0)
    await world.minutes(1)
    assert len(await world.told(1)) == 1
    await world.schedules.rules.update(rule.rule_id, enabled=False)
    await world.minutes(3)
    await world.settled()
    assert len(world.hook.came) == 1


async def test_repeats_are_counted_and_told_once_per_window(world: World) -> None:
    await world.channel()
    await world.schedule()
    await world.schedules.rules.create(name="r", on=["failed"], channels=["ops"], window_seconds=600)
    world.plan = ["no"] * 60
    await world.schedules.start()
    for _ in range(25):
        await world.minutes(1)
        await world.settled()
    told = await world.told(3)
    assert events(told) == ["failed", "held", "held"]
    # 12:01 is told; 12:02 to 12:10 are counted until the window ends at 12:11, which is the tenth; then a new one runs
    counts = [one["data"]["count"] for one in told[1:]]
    assert sum(counts) + 1 <= 25
    assert told[1]["data"]["title"] == f"backup failed {counts[0]} times more"
    assert counts[0] in (9, 10)
    assert counts[1] in (9, 10, 11)


async def test_a_flood_is_summarised(world: World) -> None:
    await world.channel(most_per_minute=3)
    for number in range(10):
        await world.schedule(name=f"job {number}", spec="1 12 * * *")
    await world.schedules.rules.create(name="r", on=["failed"], channels=["ops"])
    world.plan = ["no"] * 10
    await world.schedules.start()
    await world.minutes(1)
    assert events(await world.told(3)) == ["failed"] * 3
    for _ in range(3):
        await world.minutes(1)
        await world.settled()
    told = await world.told(4)
    assert events(told) == ["failed"] * 3 + ["held"]
    summary = told[3]["data"]
    assert summary["count"] == 7
    assert summary["title"] == "7 notices were held back"
    assert len({one["data"]["name"] for one in told[:3]} | {one["name"] for one in summary["held"]}) == 10


async def test_a_channel_that_fails_is_tried_again_in_order_and_holds_up_nobody(world: World, hook: Hook) -> None:
    await world.channel()
    got: list[str] = []
    await world.schedule(name="one")
    await world.schedule(name="mail", action={"kind": "message", "to": "inbox"}, payload={"text": "x"})
    world.schedules.deliver_to("inbox", lambda event: got.append(event["id"]))
    rules = world.schedules.rules
    await rules.create(name="r", on=["failed", "recovered"], channels=["ops"], window_seconds=0)
    world.plan = ["no", None]
    hook.answers = [(500, "come back later"), (503, "not yet")]
    await world.schedules.start()
    await world.minutes(1)
    await hook.wait_for(1)
    for wanted in (2, 3, 4):
        while hook.count < wanted:
            await world.minutes(0.1)
            await asyncio.sleep(0.01)
    assert events(await world.told(4)) == ["failed", "failed", "failed", "recovered"]
    assert len({came.json["id"] for came in hook.came[:3]}) == 1
    assert len(got) >= 2


@pytest.mark.parametrize("flush", [True, False])
async def test_a_channel_takes_notices_alone(world: World, monkeypatch: pytest.MonkeyPatch, *, flush: bool) -> None:
    """A message of a schedule that got past the check of `to` is for nobody, whatever it looks like."""
    turned: list[str] = []

    async def turn_over(self: ChannelTarget) -> None:
        turned.append(repr(self))

    monkeypatch.setattr(ChannelTarget, "turn_over", turn_over)
    await world.channel()
    schedule_id = await world.schedule(spec="0 0 1 1 *")
    (stored,) = await world.store.schedules.find(ScheduleFilter(schedule_ids=[schedule_id]))
    now = world.clock.now()
    forged = Flush("1") if flush else Notice("1", "failed", now, "schedule", schedule_id, "x", "default", ())
    body = msgspec.json.encode(forged).decode()
    message = OutboxMessage(stored.sid, "default", f"{schedule_id}:manual:1", "channel:ops", body, now)
    await world.store.outbox.post([message], now)
    await world.schedules.start()
    await world.minutes(0.1)
    await world.settled()
    found = await world.store.outbox.sending(stored.sid, message.message_id)
    assert found is not None
    assert 'No target named "channel:ops" is registered' in (found.error or "")
    assert (world.hook.came, turned) == ([], [])


async def test_what_a_channel_never_takes_is_a_dead_letter(world: World, hook: Hook) -> None:
    await world.channel()
    schedule_id = await world.schedule(spec="1 12 * * *")
    await world.schedules.rules.create(name="r", on=["failed"], channels=["ops"])
    world.plan = ["no"]
    hook.answers = [(410, "gone for good")] * 10
    await world.schedules.start()
    await world.minutes(1)
    page = await world.schedules.dead_letters()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not page.items:
            await world.minutes(1)
            await asyncio.sleep(0.01)
            page = await world.schedules.dead_letters()
    (letter,) = page.items
    assert "gone for good" in letter.error
    assert letter.attempts == 10
    audits = await world.schedules.audit(event="message.dead")
    assert [one.subject for one in audits.items] == [schedule_id]


async def test_what_is_sent_carries_a_signature_that_the_receiver_verifies(world: World, hook: Hook) -> None:
    await world.channel()
    keys = await world.schedules.channels.signing_keys("ops")
    await world.schedules.channels.test("ops")
    (came,) = hook.came
    now = world.clock.now() / 1_000_000
    receiver = Receiver(keys, clock=lambda: now)
    receiver.verify(came.headers, came.body)


@pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres"])
async def test_a_crash_between_the_settle_and_the_delivery_loses_nothing(
    backend: str, tmp_path: Path, hook: Hook, request: pytest.FixtureRequest
) -> None:
    data, dead = MemoryStore().data, set[str]()
    server: PostgresServer | None = request.getfixturevalue("postgres") if backend == "postgres" else None
    dsn = "" if server is None else await server.new_ledger()

    def handle() -> Ledger:
        if backend == "memory":
            return MemoryStore(data)
        if backend == "sqlite":
            return SqliteStore(tmp_path / "s.db", threaded=False)
        return PatientPostgres(dsn, dead)

    store = handle()
    await store.open()
    world = World(store, hook)
    await world.channel()
    schedule_id = await world.schedule(spec="1 12 * * *")
    await world.schedules.rules.create(name="r", on=["failed"], channels=["ops"])
    world.plan = ["no"]
    hook.hold = asyncio.Event()
    await world.schedules.start()
    while not hook.count:  # a server store needs real time for each step
        await world.minutes(0.25)
        await asyncio.sleep(0.02)
    store.kill()
    hook.hold.set()
    abandoned = asyncio.ensure_future(world.schedules.stop())

    again = handle()
    await again.open()
    second = World(again, hook)
    second.keys, second.clock = world.keys, world.clock
    second.schedules = second.new()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not second.schedules.running:
            with contextlib.suppress(SchedulerInUseError):  # a lease of the dead one lasts a moment longer
                await second.schedules.start()
            await asyncio.sleep(0.05)
    while hook.count < 2:
        await world.minutes(0.25)
        await asyncio.sleep(0.02)
    ids = {came.json["id"] for came in hook.came}
    assert len(ids) == 1
    assert next(iter(ids)).startswith(f"{schedule_id}:scheduled:")
    await second.settled()
    await second.minutes(10)
    assert hook.count == 2
    await second.stop()
    while not abandoned.done():
        await world.minutes(1)
        await asyncio.sleep(0.01)
    await asyncio.gather(abandoned, return_exceptions=True)
    await again.close()
