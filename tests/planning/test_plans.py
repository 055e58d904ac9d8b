"""Plans and their application, on every store."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell import planning
from noonbell.core.presence import EngineRecord, EngineSign, engine_name
from noonbell.errors import DeletionRefusedError, PlanOutdatedError, ScheduleFileInvalidError
from noonbell.ledger import verify_store
from noonbell.planning import Plan, apply, loads, plan
from noonbell.ports import AuditFilter, Ledger, ScheduleFilter
from noonbell.schedules import Call, Schedules
from noonbell.testing import ManualClock
from noonbell.timing.timing_protocol import SECOND
from tests.effort import examples
from tests.planning.conftest import NOON, NOW, applied, clock_beside, toml
from tests.schedules.conftest import store_maker

DAY = 86_400 * SECOND
ACTION = {"kind": "callback", "name": "work"}


def kinds(made: Plan) -> dict[str, str]:
    return {item.id: item.kind for item in (*made.schedules, *made.quiet_hours)}


async def stored(store: Ledger) -> dict[str, Any]:
    found = await store.schedules.find(ScheduleFilter(managed_by="file:billing"), 0, 1000)
    return {one.schedule_id: one for one in found}


async def audits(store: Ledger) -> list[tuple[str, str, str]]:
    found = await store.audit.page(AuditFilter(), 0, 1000)
    return [(event.event, event.subject, event.actor) for _, event in found]


def test_the_public_names() -> None:
    assert sorted(planning.__all__) == [
        "Applied", "FieldChange", "Format", "Item", "Moves", "Plan", "Problem", "ScheduleFile", "apply", "load",
        "loads", "moves", "plan",
    ]  # fmt: skip


async def test_creations_changes_and_deletions(store: Ledger) -> None:
    first = '[schedules.report]\ncron = "30 2 * * *"\ntimezone = "America/New_York"\n[schedules.old]\nevery = "15m"\n'
    assert kinds(await applied(store, first)) == {"report": "create", "old": "create"}
    again = await plan(store, toml(first), now=NOW)
    assert again.empty
    assert again.unchanged == 2

    second = '[schedules.report]\ncron = "30 3 * * *"\ntimezone = "America/New_York"\ncatch_up_policy = "run_once"\n'
    made = await plan(store, toml(second + '[schedules.fresh]\ncron = "@hourly"\n'), now=NOW)
    assert kinds(made) == {"report": "change", "fresh": "create", "old": "delete"}
    report, fresh, old = made.schedules
    assert [(one.field, one.before, one.after) for one in report.changes] == [
        ("cron", "30 2 * * *", "30 3 * * *"),
        ("catch_up_policy", "skip", "run_once"),
    ]
    assert report.words[0] == "02:30 becomes 03:30 New York"
    assert fresh.understood == "0 * * * *"
    assert fresh.words == ("first fire Sun 15 Nov 13:00 UTC", "24 fires a day")
    assert old.words[0] == "96 fires a day fewer"
    done = await apply(store, made, now=NOW, allow_delete=True, actor="deploy")
    assert (done.created, done.changed, done.deleted) == (1, 1, 1)
    assert done.wake_at == NOW // (3600 * SECOND) * 3600 * SECOND + 3600 * SECOND
    rows = await stored(store)
    assert sorted(rows) == ["fresh", "report"]
    assert (rows["report"].columns.spec, rows["report"].epoch) == ("30 3 * * *", 2)
    assert await audits(store) == [
        ("schedule.created", "report", "file:billing"),
        ("schedule.created", "old", "file:billing"),
        ("schedule.updated", "report", "deploy"),
        ("schedule.deleted", "old", "deploy"),
        ("schedule.created", "fresh", "deploy"),
    ]


async def test_others_are_left_alone(store: Ledger) -> None:
    schedules = Schedules(store, clock=ManualClock(NOON))
    await schedules.create(schedule_id="theirs", type="cron", spec="0 9 * * *", action=ACTION)
    assert kinds(await applied(store, "[schedules.mine]\nevery = 60\n")) == {"mine": "create"}
    with pytest.raises(ScheduleFileInvalidError) as caught:
        await plan(store, toml("[schedules.mine]\nevery = 60\n[schedules.theirs]\nevery = 60\n"), now=NOW)
    assert str(caught.value) == "billing.toml:6:12: schedules.theirs belongs to api; choose another id"
    assert kinds(await applied(store, "")) == {"mine": "delete"}
    assert (await schedules.get("theirs")).spec == "0 9 * * *"


async def test_what_the_store_cannot_take_is_told_with_its_line(store: Ledger) -> None:
    await applied(store, "[schedules.a]\nevery = 60\n[schedules.b]\nevery = 60\n")
    await applied(store, "[schedules.a]\nevery = 60\n")
    text = (
        '[schedules.a]\ncron = "0 9 * * *"\n[schedules.b]\nevery = 60\n[schedules.c]\nat = 2026-01-01T00:00:00\n'
        '[schedules.d]\nevery = 60\nquiet_hours_policy_id = "nights"\n'
    )
    with pytest.raises(ScheduleFileInvalidError) as caught:
        await plan(store, toml(text), now=NOW)
    told = [problem.text for problem in caught.value.problems]
    assert [one.partition(": ")[0] for one in told] == [
        "billing.toml:5:8",
        "billing.toml:6:12",
        "billing.toml:9:6",
        "billing.toml:12:25",
    ]
    assert "cannot be changed from interval; choose another id" in told[0]
    assert "was deleted, and an id is never used again; choose another, such as b-2" in told[1]
    assert "schedules.c.at '2026-01-01T00:00:00' is in the past" in told[2]
    assert "'nights' names no quiet hours, in this file or in the store" in told[3]


async def test_names_may_change_hands(store: Ledger) -> None:
    def named(**names: str) -> str:
        return "".join(f'[schedules.{key}]\nevery = 60\nname = "{name}"\n' for key, name in names.items())

    async def names() -> dict[str, str]:
        return {key: one.columns.name for key, one in (await stored(store)).items()}

    await applied(store, named(a="one", b="two", c="three"))
    await applied(store, named(a="two", b="one", c="three"))
    assert await names() == {"a": "two", "b": "one", "c": "three"}
    await applied(store, named(b="two", c="one", d="three"))  # a goes, its name stays
    assert await names() == {"b": "two", "c": "one", "d": "three"}


async def test_deletions_must_be_allowed(store: Ledger) -> None:
    await applied(store, "[schedules.a]\nevery = 60\n")
    made = await plan(store, toml(""), now=NOW)
    with pytest.raises(DeletionRefusedError, match="deletes a; allow that"):
        await apply(store, made, now=NOW)
    assert list(await stored(store)) == ["a"]


@pytest.mark.parametrize("meddle", ["edit", "pause", "delete", "create", "edit another"])
async def test_a_store_that_has_changed_is_left_alone(store: Ledger, meddle: str) -> None:
    await applied(store, "[schedules.a]\nevery = 60\n[schedules.kept]\nevery = 60\n")
    made = await plan(
        store, toml("[schedules.a]\nevery = 90\n[schedules.kept]\nevery = 60\n[schedules.b]\nevery = 5\n"), now=NOW
    )
    schedules = Schedules(store, clock=ManualClock(NOON), managed_by="file:billing")
    match meddle:
        case "edit":
            await schedules.update("a", tags=["x"])
        case "pause":
            await schedules.pause("a")
        case "delete":
            await schedules.delete("a")
        case "create":
            await schedules.create(schedule_id="x", type="interval", spec=60, action=ACTION)
        case _:
            await schedules.update("kept", tags=["x"])
    before = await audits(store)
    with pytest.raises(PlanOutdatedError, match="since the plan was made; nothing was applied"):
        await apply(store, made, now=NOW)
    assert await audits(store) == before
    assert "b" not in await stored(store)


async def test_all_or_nothing(store: Ledger) -> None:
    """An id that another owner takes in the last moment undoes the quiet hours and the edits."""
    await applied(store, "[schedules.a]\nevery = 60\n")
    text = (
        '[schedules.a]\nevery = 90\nquiet_hours_policy_id = "q"\n[schedules.b]\nevery = 60\n[quiet_hours.q]\n'
        'windows = [{ weekdays = [1], from = "01:00", to = "02:00", timezone = "UTC" }]\n'
    )
    made = await plan(store, toml(text), now=NOW)
    await Schedules(store, clock=ManualClock(NOON)).create(schedule_id="b", type="interval", spec=60, action=ACTION)
    with pytest.raises(Exception, match='The schedule_id "b" is taken'):
        await apply(store, made, now=NOW)
    assert await store.schedules.quiet_hours() == []
    assert (await stored(store))["a"].columns.spec == "60"


async def test_a_one_shot_that_has_fired_is_as_declared(store: Ledger) -> None:
    clock = clock_beside(store)
    text = "[schedules.once]\nat = 2026-11-15T12:30:00\n"
    await applied(store, text)
    fired: list[str] = []

    async def work(call: Call) -> None:
        fired.append(call.schedule_id)

    schedules = Schedules(store, clock=clock, callbacks={"work": work}, longest_wait=timedelta(minutes=10))
    await schedules.start()
    await clock.advance(timedelta(hours=1))
    await schedules.stop()
    assert fired == ["once"]
    now = clock.now()
    assert (await plan(store, toml(text), now=now)).empty
    later = await applied(store, "[schedules.once]\nat = 2026-11-16T12:30:00\n", now)
    assert [(one.field, one.after) for one in later.schedules[0].changes] == [
        ("at", "2026-11-16T12:30:00"),
        ("enabled", True),
    ]
    assert (await stored(store))["once"].enabled


async def test_pausing_and_resuming(store: Ledger) -> None:
    await applied(store, "[schedules.a]\nevery = 60\n")
    paused = await applied(store, "[schedules.a]\nevery = 60\nenabled = false\n")
    assert paused.schedules[0].words[0] == "1,440 fires a day fewer"
    assert not (await stored(store))["a"].enabled
    resumed = await applied(store, "[schedules.a]\nevery = 60\n")
    assert resumed.schedules[0].words[0].startswith("first fire Sun 15 Nov ")
    assert (await audits(store))[1:] == [
        ("schedule.paused", "a", "file:billing"),
        ("schedule.resumed", "a", "file:billing"),
    ]


# --- quiet hours ------------------------------------------------------------------------------------------------------

QUIET = (
    '[quiet_hours.nights]\nwindows = [{{ weekdays = [0, 1, 2, 3, 4, 5, 6], from = "{}", to = "06:00", '
    'timezone = "UTC" }}]\n[schedules.a]\ncron = "0 * * * *"\nquiet_hours_policy_id = "nights"\n'
)


async def test_quiet_hours_belong_to_the_file(store: Ledger) -> None:
    created = await applied(store, QUIET.format("22:00"))
    assert kinds(created) == {"a": "create", "file:billing:nights": "create"}
    assert created.schedules[0].words[1] == "16 fires a day"
    (policy,) = await store.schedules.quiet_hours()
    assert (policy.policy_id, policy.name) == ("file:billing:nights", "nights")

    made = await applied(store, QUIET.format("20:00"), NOW + DAY)
    assert kinds(made) == {"a": "change", "file:billing:nights": "change"}
    assert made.schedules[0].words[:2] == (
        "2 fires a day fewer: 14 instead of 16",
        "20:00 and 21:00 UTC stay away",
    )
    row = (await stored(store))["a"]
    assert (row.epoch, json.loads(row.quiet)["windows"][0]["from"]) == (2, "20:00")
    assert (await plan(store, toml(QUIET.format("20:00")), now=NOW + DAY)).empty

    gone = await applied(store, '[schedules.a]\ncron = "0 * * * *"\n', NOW + 2 * DAY)
    assert kinds(gone) == {"a": "change", "file:billing:nights": "delete"}
    assert await store.schedules.quiet_hours() == []
    assert [event for event, subject, _ in await audits(store) if subject.endswith("nights")] == [
        "quiet_hours.created",
        "quiet_hours.updated",
        "quiet_hours.deleted",
    ]
    told = [json.loads(event.detail) for _, event in await store.audit.page(AuditFilter("file:billing:nights"), 0, 10)]
    assert [one["windows"][0]["from"] for one in (told[0], told[1]["before"], told[1]["after"], told[2])] == [
        "22:00", "22:00", "20:00", "20:00",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('at = "2026-11-15T15:00"', 'at = "2026-11-15T15:00"\ntimezone = "Asia/Tokyo"', "6:12"),
        ('cron = "0 * * * *"', 'cron = "0 * * * *"\nend_at = "2020-01-01T00:00"', "6:10"),
    ],
)
async def test_a_change_that_leaves_nothing_to_come_is_a_problem_of_its_field(
    store: Ledger, before: str, after: str, told: str
) -> None:
    await applied(store, f"[schedules.a]\n{before}\n")
    with pytest.raises(ScheduleFileInvalidError) as refused:
        await plan(store, toml(f"[schedules.a]\n{after}\n"), now=NOW)
    (problem,) = refused.value.problems
    assert f"{problem.line}:{problem.column}" == told


async def test_applying_knows_that_the_lane_was_polled(store: Ledger) -> None:
    await applied(store, '[schedules.a]\ncron = "* * * * *"\n')
    hold = await store.hold(engine_name("one-1"), "process 1")
    await store.engines.join(EngineRecord("one-1", "default", "h", 1, "1", "-", NOW, NOW, "up"))
    await store.engines.beat(EngineSign("one-1", NOW, NOW, "up", last_poll_at=NOW + 550_000_000), lambda: NOW)
    await applied(store, '[schedules.a]\ncron = "*/2 * * * *"\n', NOW + 600_000_000)
    hold.release()
    (span,) = await store.history.spans(1, NOW, NOW + DAY)
    assert (span.verdict, span.reason) == ("coalesced", "one run for all that was due")


async def test_quiet_hours_that_others_use(store: Ledger) -> None:
    await applied(store, QUIET.format("22:00"))
    schedules = Schedules(store, clock=ManualClock(NOON))
    theirs = await schedules.create(
        type="cron", spec="0 * * * *", action=ACTION, quiet_hours_policy_id="file:billing:nights"
    )
    await applied(store, QUIET.format("20:00"), NOW + DAY)
    assert (await schedules.get(theirs.schedule_id)).epoch == 2
    with pytest.raises(ScheduleFileInvalidError, match=f"is used by {theirs.schedule_id} of api"):
        await plan(store, toml(""), now=NOW + DAY)


async def test_quiet_hours_of_the_store_can_be_named(store: Ledger) -> None:
    schedules = Schedules(store, clock=ManualClock(NOON))
    window = {"weekdays": [1], "from": "01:00", "to": "02:00", "timezone": "UTC"}
    await schedules.create_quiet_hours("shared", [window], policy_id="shared")
    await applied(store, '[schedules.a]\nevery = 60\nquiet_hours_policy_id = "shared"\n')
    assert (await stored(store))["a"].columns.quiet_hours_policy_id == "shared"
    await applied(store, "")
    assert [policy.policy_id for policy in await store.schedules.quiet_hours()] == ["shared"]


async def test_the_ledger_stays_whole_through_edits(store: Ledger) -> None:
    clock = clock_beside(store)
    await applied(store, '[schedules.a]\ncron = "* * * * *"\n[schedules.b]\nevery = 30\n')

    async def work(call: Call) -> None:
        """Over at once."""

    schedules = Schedules(store, clock=clock, callbacks={"work": work}, longest_wait=timedelta(seconds=5))
    await schedules.start()
    for text in ('[schedules.a]\ncron = "0-58 * * * *"\n', '[schedules.a]\ncron = "* * * * *"\ncatch_up_cap = 3\n', ""):
        await clock.advance(timedelta(minutes=7))
        await applied(store, text, clock.now())
    await clock.advance(timedelta(minutes=7))
    await schedules.stop()
    report = await verify_store(store)
    assert report.clean, report.problems
    assert report.runs > 20


# --- whatever a file says ---------------------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "c d", "e.f", "ü"])
SPECS = st.one_of(
    st.builds(lambda m, h: {"cron": f"{m} {h} * * *"}, st.integers(0, 59), st.sampled_from(["*", "1", "9-17", "*/2"])),
    st.builds(lambda n: {"every": n}, st.one_of(st.integers(60, 10**6), st.sampled_from(["15m", "2h", "1d"]))),
    st.builds(lambda n: {"at": f"2027-03-{n:02}T09:30"}, st.integers(1, 28)),
)
REST = st.fixed_dictionaries(
    {},
    optional={
        "timezone": st.sampled_from(["UTC", "Europe/Kyiv", "America/New_York"]),
        "enabled": st.booleans(),
        "catch_up_policy": st.sampled_from(["skip", "run_once", "run_all_capped"]),
        "catch_up_cap": st.integers(1, 50),
        "overlap": st.sampled_from(["coalesce", "skip", "allow"]),
        "retry": st.fixed_dictionaries({}, optional={"attempts": st.integers(1, 5), "delay_seconds": st.floats(0, 60)}),
        "dst": st.sampled_from(["literal", "once"]),
        "start_at": st.sampled_from(["2026-12-01T00:00", "2026-11-20T10:00+02:00", None]),
        "end_at": st.sampled_from(["2027-12-01T00:00", None]),
        "jitter_seconds": st.floats(0, 30),
        "quiet_hours_policy_id": st.sampled_from(["q", None]),
        "payload": st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=5)),
            lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=3) | st.lists(inner, max_size=3),
            max_leaves=5,
        ),
        "tags": st.lists(st.sampled_from(["x", "y z", "ü"]), max_size=3),
        "action": st.sampled_from(
            [
                ACTION,
                {"kind": "command", "argv": ["x"], "env": {"A": "1"}, "timeout_seconds": 7200},
                {"name": "b", "kind": "callback"},
            ]
        ),
    },
)
DECLARED = st.dictionaries(
    IDS, st.builds(lambda spec, rest: {"action": ACTION, **rest, **spec}, SPECS, REST), max_size=4
)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@settings(max_examples=examples(40), deadline=None)
@given(files=st.lists(DECLARED, min_size=1, max_size=3), quiet_from=st.sampled_from(["20:00", "22:00"]))
async def test_after_an_apply_the_plan_is_empty(
    kind: str, files: list[dict[str, Any]], quiet_from: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = store_maker(kind, tmp_path_factory.mktemp("plans"))()
    await store.open()
    gone: set[str] = set()
    last: dict[str, Any] = {}
    for number, declared in enumerate(files):
        now = NOW + number * DAY
        # an id that was deleted, or is of another kind by now, is a problem, told elsewhere
        kept = {
            key: fields
            for key, fields in declared.items()
            if key not in gone and (key not in last or {*last[key]} & {"cron", "every", "at"} <= {*fields})
        }
        window = {"weekdays": [number], "from": quiet_from, "to": "06:00", "timezone": "UTC"}
        text = json.dumps({"name": "n", "quiet_hours": {"q": {"windows": [window]}}, "schedules": kept})
        file = loads(text, format="yaml")
        made = await plan(store, file, now=now)
        await apply(store, made, now=now, allow_delete=True)
        again = await plan(store, file, now=now)
        assert again.empty, again.to_json()
        assert again.unchanged == len(kept)
        json.dumps(made.to_json())
        gone |= set(last) - set(kept)
        last = kept
    await store.close()
