"""The face of monitors, on every store."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from noonbell.actions.secrets.keys import new_ring
from noonbell.actions.secrets.secrets import Secrets
from noonbell.errors import MonitorInvalidError, MonitorNotFoundError, NoonbellError, PingUnknownError
from noonbell.monitors import Monitor, Monitors
from noonbell.monitors.monitors import LONGEST_BODY
from noonbell.monitors.stored_monitors import FLIP, KEPT, MONITOR, PING, TOKEN, token_write
from noonbell.ports import AuditFilter, DocumentFilter
from noonbell.testing import ManualClock
from tests.monitors.conftest import NOON, Handle, Handles, minutes


@pytest.fixture
def monitors(store: Handle, clock: ManualClock) -> Monitors:
    return Monitors(store, clock, actor="ann")


async def hourly(monitors: Monitors, **fields: Any) -> Monitor:
    return await monitors.create(**{"name": "backup", "type": "interval", "spec": "3600", **fields})


async def audits(store: Handle, monitor_id: str) -> list[tuple[str, str]]:
    rows = await store.audit.page(AuditFilter(subject=monitor_id), 0, 100)
    return [(event.event, event.actor) for _, event in rows]


async def test_a_monitor_is_made_shown_and_deleted(store: Handle, monitors: Monitors) -> None:
    made = await monitors.create(
        name="backup", type="cron", spec="@daily", timezone="Europe/Kyiv", grace_seconds=1800, tags=["db", "db"]
    )
    assert (made.spec, made.understood, made.status, made.due_at) == ("0 0 * * *", "0 0 * * *", "new", None)
    assert made.ping_path == f"/ping/{made.token}"
    assert made.tags == ("db",)
    assert made.created_at == made.since == NOON
    shown = await monitors.get(made.monitor_id)
    assert shown.token == made.token
    await monitors.ping(made.token, body="done")
    await monitors.delete(made.monitor_id)
    with pytest.raises(MonitorNotFoundError):
        await monitors.get(made.monitor_id)
    with pytest.raises(MonitorNotFoundError):
        await monitors.delete(made.monitor_id)
    with pytest.raises(PingUnknownError):
        await monitors.ping(made.token)
    for kind in (MONITOR, TOKEN, PING, FLIP):
        assert await store.documents.find(DocumentFilter(kind), "", 10) == []
    assert await audits(store, made.monitor_id) == [
        ("monitor.created", "ann"),
        ("monitor.up", "ping"),
        ("monitor.deleted", "ann"),
    ]


async def test_the_list_comes_in_pages_and_by_team(monitors: Monitors) -> None:
    for number in range(5):
        await hourly(monitors, monitor_id=f"m{number}", team="red" if number % 2 else "blue")
    first = await monitors.list(limit=2)
    second = await monitors.list(limit=3, cursor=first.next_cursor)
    assert [one.monitor_id for one in first.items + second.items] == ["m0", "m1", "m2", "m3", "m4"]
    assert second.next_cursor is None
    assert [one.monitor_id for one in (await monitors.list(team="red")).items] == ["m1", "m3"]


async def test_an_id_is_taken_once_and_what_follows_inherits_nothing(monitors: Monitors) -> None:
    first = await hourly(monitors, monitor_id="backup", team="red")
    with pytest.raises(MonitorInvalidError, match="is taken"):
        await hourly(monitors, monitor_id="backup", team="blue")
    await monitors.ping(first.token)
    await monitors.delete("backup")
    second = await hourly(monitors, monitor_id="backup", team="blue")
    await monitors.ping(second.token, "fail")
    assert [ping.kind for ping in await monitors.pings("backup")] == ["fail"]
    assert [flip.status for flip in await monitors.flips("backup")] == ["down"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": " "}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"type": "weekly"}, "type"),
        ({"type": "interval", "spec": "5m"}, "spec"),
        ({"type": "cron", "spec": "61 * * * *"}, "spec"),
        ({"type": "cron", "spec": "0 0 30 2 *"}, "spec"),
        ({"type": "cron", "spec": 5}, "spec"),
        ({"timezone": "Kyiv"}, "timezone"),
        ({"grace_seconds": -1}, "grace_seconds"),
        ({"grace_seconds": float("nan")}, "grace_seconds"),
        ({"max_run_seconds": 0}, "max_run_seconds"),
        ({"tags": "db"}, "tags"),
        ({"dst": "twice"}, "dst"),
        ({"monitor_id": "a/b"}, "monitor_id"),
        ({"grace": 5}, "grace"),
    ],
)
async def test_a_field_that_cannot_be_is_named(clock: ManualClock, fields: dict[str, Any], field: str) -> None:
    from noonbell.store.memory import MemoryStore

    store = MemoryStore()
    await store.open()
    with pytest.raises(MonitorInvalidError) as refused:
        await hourly(Monitors(store, clock), **fields)
    assert refused.value.field == field
    assert field in str(refused.value)
    assert await store.documents.find(DocumentFilter(MONITOR), "", 10) == []


async def test_pings_are_kept_with_what_they_said(clock: ManualClock, monitors: Monitors) -> None:
    made = await hourly(monitors)
    await monitors.ping(made.token, "start", run="a")
    assert [run.run for run in (await monitors.get(made.monitor_id)).running] == ["a"]
    await clock.advance(minutes(2))
    await monitors.ping(made.token, exit_code=3, run="a", body="one\0two\n")
    await monitors.ping(made.token, "log", body=b"\xff\xfe bytes")
    log, end, start = await monitors.pings(made.monitor_id)
    assert (start.kind, start.number, start.ran_for) == ("start", 0, None)
    assert (end.kind, end.exit_code, end.ran_for, end.body) == ("fail", 3, minutes(2), "one\0two\n")
    assert log.body == "\ufffd\ufffd bytes"
    shown = await monitors.get(made.monitor_id)
    assert (shown.status, shown.reason, shown.pings, shown.running) == ("down", "exit code 3", 3, ())


async def test_the_body_of_a_ping_is_cut_between_letters(monitors: Monitors) -> None:
    made = await hourly(monitors)
    await monitors.ping(made.token, body="a" + "ö" * LONGEST_BODY)
    await monitors.ping(made.token, body="x" * LONGEST_BODY)
    whole, cut = await monitors.pings(made.monitor_id)
    assert (len(whole.body), whole.cut) == (LONGEST_BODY, False)
    assert cut.cut
    assert cut.body == "a" + "ö" * ((LONGEST_BODY - 1) // 2)


async def test_secrets_are_hidden_before_the_body_is_cut(store: Handle, clock: ManualClock) -> None:
    monitors = Monitors(store, clock, mask=lambda team, text: text.replace(f"s3cret-of-{team}", "***"))
    made = await hourly(monitors, team="red")
    await monitors.ping(made.token, body="x" * (LONGEST_BODY - 5) + "s3cret-of-red")
    (ping,) = await monitors.pings(made.monitor_id)
    assert ping.body.endswith("x***")
    assert ping.cut


async def test_the_secrets_of_the_team_are_hidden_also_where_nobody_has_used_them_yet(
    store: Handle, clock: ManualClock
) -> None:
    ring = new_ring()
    await Secrets(store, ring, clock).put("red", "KEY", "opens+every/door")
    await Secrets(store, ring, clock).put("blue", "KEY", "opens another one")
    # as after a restart: nothing has asked for a secret in this process
    monitors = Monitors(store, clock, secrets=Secrets(store, ring, clock))
    made = await hourly(monitors, team="red")
    said = "plain opens+every/door, quoted opens%2Bevery%2Fdoor, packed b3BlbnMrZXZlcnkvZG9vcg=="
    await monitors.ping(made.token, "start", run="opens+every/door")
    await monitors.ping(made.token, body=said, run="opens+every/door")
    ping, start = await monitors.pings(made.monitor_id)
    assert ping.body == "plain ***, quoted ***, packed ***"
    assert (ping.run, start.run) == ("***", "***")
    assert ping.ran_for is not None


async def test_only_the_last_pings_and_flips_are_kept(store: Handle, clock: ManualClock, monitors: Monitors) -> None:
    made = await hourly(monitors)
    count = KEPT[PING] + 7
    for number in range(count):
        await clock.advance(minutes(1))
        await monitors.ping(made.token, "fail" if number % 2 else "success", body=str(number))
    found = await monitors.pings(made.monitor_id)
    assert [ping.body for ping in found] == [str(number) for number in reversed(range(7, count))]
    assert len(await store.documents.find(DocumentFilter(PING), "", 1000)) == KEPT[PING]
    assert [ping.body for ping in await monitors.pings(made.monitor_id, limit=2)] == [str(count - 1), str(count - 2)]
    flips = await monitors.flips(made.monitor_id, limit=3)
    assert [flip.number for flip in flips] == [count - 1, count - 2, count - 3]
    assert {flip.lasted for flip in flips} == {minutes(1)}


@pytest.mark.parametrize(
    "ping",
    [{"kind": "great"}, {"exit_code": 256}, {"exit_code": -1}, {"exit_code": 0, "kind": "fail"}, {"run": "x" * 65}],
)
async def test_a_ping_that_makes_no_sense_is_refused(monitors: Monitors, ping: dict[str, Any]) -> None:
    made = await hourly(monitors)
    with pytest.raises(MonitorInvalidError):
        await monitors.ping(made.token, **ping)
    assert (await monitors.get(made.monitor_id)).pings == 0


@pytest.mark.parametrize("token", ["", "nobody", "x" * 500, "\ud800"])
async def test_an_unknown_token_is_not_repeated_in_the_error(monitors: Monitors, token: str) -> None:
    with pytest.raises(PingUnknownError) as refused:
        await monitors.ping(token)
    assert not token or token not in str(refused.value)


async def test_a_new_url_takes_the_place_of_the_old_one(monitors: Monitors) -> None:
    made = await hourly(monitors)
    renewed = await monitors.renew_token(made.monitor_id)
    assert renewed.token != made.token
    with pytest.raises(PingUnknownError):
        await monitors.ping(made.token)
    assert (await monitors.ping(renewed.token)).status == "up"


async def test_an_old_url_that_a_crash_left_behind_opens_nothing(store: Handle, monitors: Monitors) -> None:
    made = await hourly(monitors)
    await monitors.renew_token(made.monitor_id)
    await store.documents.write([token_write(made.token, made.monitor_id, made.team)], 1)
    with pytest.raises(PingUnknownError):
        await monitors.ping(made.token)
    assert (await monitors.get(made.monitor_id)).pings == 0


async def test_changing_the_rhythm_counts_from_now(clock: ManualClock, monitors: Monitors) -> None:
    made = await hourly(monitors)
    await monitors.ping(made.token)
    await clock.advance(minutes(59))
    changed = await monitors.update(made.monitor_id, type="cron", spec="*/15 * * * *", grace_seconds=60)
    assert changed.understood == "0,15,30,45 * * * *"
    assert changed.due_at == NOON + minutes(60)
    assert changed.down_at == NOON + minutes(61)
    same = await monitors.update(made.monitor_id, name="backup")
    assert same.version == changed.version
    with pytest.raises(MonitorInvalidError, match="another type needs a spec"):
        await monitors.update(made.monitor_id, type="interval")
    with pytest.raises(MonitorInvalidError, match="cannot be changed"):
        await monitors.update(made.monitor_id, team="red")  # type: ignore[call-arg]  # what a caller without types does


async def test_pausing_and_resuming_is_told(store: Handle, clock: ManualClock, monitors: Monitors) -> None:
    made = await hourly(monitors)
    await monitors.ping(made.token)
    assert (await monitors.pause(made.monitor_id)).status == "paused"
    await monitors.pause(made.monitor_id)
    await clock.advance(timedelta(days=1))
    assert (await monitors.ping(made.token, "fail")).status == "paused"
    back = await monitors.resume(made.monitor_id)
    assert (back.status, back.due_at) == ("up", NOON + timedelta(days=1, hours=1))
    assert [event for event, _ in await audits(store, made.monitor_id)] == [
        "monitor.created",
        "monitor.up",
        "monitor.paused",
        "monitor.resumed",
    ]
    detail = json.loads((await store.audit.page(AuditFilter(event="monitor.resumed"), 0, 1))[0][1].detail)
    assert (detail["from"], detail["to"], detail["lasted_seconds"]) == ("paused", "up", 86_400)


async def test_pings_from_many_sides_are_all_counted_and_flip_once(handles: Handles, clock: ManualClock) -> None:
    sides = [Monitors(await handles(), clock) for _ in range(3)]
    made = await hourly(sides[0])
    await asyncio.gather(*(sides[number % 3].ping(made.token, body=str(number)) for number in range(30)))
    await asyncio.gather(*(sides[number % 3].ping(made.token, "fail") for number in range(6)))
    shown = await sides[1].get(made.monitor_id)
    assert (shown.pings, shown.flips, shown.status) == (36, 2, "down")
    found = await sides[2].pings(made.monitor_id)
    assert sorted(ping.number for ping in found) == list(range(36))
    assert {ping.body for ping in found} == {str(number) for number in range(30)} | {""}


async def test_a_delete_among_pings_leaves_no_monitor_behind(handles: Handles, clock: ManualClock) -> None:
    first, second = Monitors(await handles(), clock), Monitors(await handles(), clock)
    made = await hourly(first)
    answers = await asyncio.gather(
        *(first.ping(made.token) for _ in range(5)),
        second.delete(made.monitor_id),
        *(second.ping(made.token) for _ in range(5)),
        return_exceptions=True,
    )
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert all(isinstance(error, PingUnknownError) for error in refused)
    with pytest.raises(NoonbellError):
        await first.get(made.monitor_id)
