"""Filters of reads: each field narrows the answer by itself, and all combinations hold."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any, Final

import msgspec

from noonbell.core.records import (
    AuditEvent,
    Definition,
    Document,
    DocumentWrite,
    DurableSchedule,
    Edit,
    QuietHoursPolicy,
    RemovedSchedule,
    Run,
    ScheduleColumns,
    Settlement,
    StoredSchedule,
)
from noonbell.core.turns import definition_of, drop
from noonbell.ports import (
    DocumentFilter,
    Ledger,
    QuietChanges,
    QuietHoursPut,
    RunFilter,
    ScheduleChange,
    ScheduleFilter,
)
from noonbell.testing.storage_cases.base import ME, MINUTE, OWNER, T0, StorageCases, claim, declaration, new

_SCHEDULES: Final[dict[str, Sequence[Any]]] = {
    "managed_by": ("api", "file:a", OWNER),
    "lane": ("default", "other", OWNER),
    "enabled": (True, False),
    "type": ("cron", "interval"),
    "tag": ("red", "none"),
    "name_contains": ("A", "_"),
    "quiet_hours_policy_id": ("calm",),
    "team": ("default", "blue"),
    "timezone": ("UTC", "Asia/Tokyo"),
    "schedule_ids": (["id-a", "id-gone", "id-a", "id-task", "unknown"], []),
    "sids": ([1, 3, 99, 3, 7], []),
    "declared": (True, None),
    "deleted": (True, None),
}
_DOCUMENTS: Final[dict[str, Sequence[Any]]] = {"ids": (["a", "c", "a", "x"], []), "team": ("red",), "waking": (True,)}
_RUNS: Final[dict[str, Sequence[Any]]] = {
    "from_at": (T0 + 2 * MINUTE,),
    "to_at": (T0 + 4 * MINUTE,),
    "kind": ("scheduled", "manual"),
    "instants": ([T0 + 2 * MINUTE, T0 + 4 * MINUTE, T0 + 2 * MINUTE, T0], []),
}


def _given(fields: dict[str, Sequence[Any]], most: int) -> Iterator[dict[str, Any]]:
    """Every choice of up to so many fields, with each of their values."""
    for count in range(most + 1):
        for names in combinations(fields, count):
            for values in product(*(fields[name] for name in names)):
                yield dict(zip(names, values, strict=True))


def _durable(
    name: str,
    *tags: str,
    kind: str = "cron",
    timezone: str = "UTC",
    quiet: str | None = None,
    managed_by: str = "api",
    lane: str = "default",
    enabled: bool = True,
    team: str = "default",
) -> DurableSchedule:
    definition = msgspec.json.encode(Definition(action={"kind": "callback", "name": "x"}, tags=tags)).decode()
    columns = ScheduleColumns(name, kind, "* * * * *", timezone, quiet, "skip", None, definition)
    return DurableSchedule(
        f"id-{name}", columns, enabled=enabled, managed_by=managed_by, lane=lane, cursor_at=T0, next_run_at=T0 + MINUTE,
        anchor_at=None, zone_hash="z1", policies="{}", team=team,
    )  # fmt: skip


def _is(one: StoredSchedule, gone: set[int], wanted: ScheduleFilter) -> bool:
    declared, deleted, columns = one.managed_by == OWNER, one.sid in gone, one.columns
    return (
        wanted.managed_by in (None, one.managed_by)
        and wanted.lane in (None, one.lane)
        and wanted.enabled in (None, one.enabled)
        and wanted.type in (None, columns.type)
        and (wanted.tag is None or (not (declared or deleted) and wanted.tag in definition_of(columns.definition).tags))
        and (wanted.name_contains is None or wanted.name_contains.lower() in columns.name.lower())
        and wanted.quiet_hours_policy_id in (None, columns.quiet_hours_policy_id)
        and wanted.team in (None, one.team)
        and wanted.timezone in (None, columns.timezone)
        and (wanted.schedule_ids is None or one.schedule_id in wanted.schedule_ids)
        and (wanted.sids is None or one.sid in wanted.sids)
        and wanted.declared in (None, declared)
        and wanted.deleted in (None, deleted)
    )


async def _schedules(store: Ledger) -> set[int]:
    """Durable schedules and declared tasks, some of them deleted; returns the sids of those."""
    policy = QuietHoursPolicy("calm", "calm", '{"windows":[]}', T0, T0)
    put = QuietHoursPut(policy, AuditEvent(T0, "quiet_hours.created", "calm", "suite", "{}"))
    created = [
        _durable("a", "red"),
        _durable("A_b", managed_by="file:a", lane="other", quiet="calm"),
        _durable("c", "red", "green", enabled=False, kind="interval"),
        _durable("d", "red", team="blue", timezone="Asia/Tokyo", quiet="calm"),
        _durable("gone", "red", quiet="calm"),
    ]
    await store.schedules.apply(ScheduleChange(created, T0, "suite", quiet=QuietChanges([put])))
    await store.schedules.declare(declaration(created=[new("task", key="id-task"), new("left", key="id-left")]))
    await store.schedules.declare(declaration(at=T0 + 9, removed=[RemovedSchedule(7, T0 + 7)]))

    def delete(stored: StoredSchedule) -> Edit:
        turn = drop(stored, T0 + 9)
        return Edit(turn.cursor_at, turn, stored.columns, None)

    await store.schedules.apply(ScheduleChange(edited=["id-gone"], edit=delete))
    return {5, 7}


class FilterCases(StorageCases):
    async def test_filters_of_schedules_combine(self) -> None:
        async with self.opened() as store:
            gone = await _schedules(store)
            every = await store.schedules.find(ScheduleFilter(declared=None, deleted=None))
            assert [one.sid for one in every] == [1, 2, 3, 4, 5, 6, 7]
            for given in _given(_SCHEDULES, 2):
                wanted = ScheduleFilter(**given)
                expected = [one.sid for one in every if _is(one, gone, wanted)]
                assert [one.sid for one in await store.schedules.find(wanted)] == expected, given
                paged = [one.sid for one in await store.schedules.find(wanted, 1, 2)]
                assert paged == [sid for sid in expected if sid > 1][:2], given

    async def test_filters_of_documents_combine(self) -> None:
        async with self.opened() as store:
            writes = [("a", "red", T0 + 9), ("b", "red", None), ("c", "blue", T0 + 3), ("d", "red", T0 + 1)]
            put = [DocumentWrite("channel", one, team, "{}", None, wake_at) for one, team, wake_at in writes]
            every = await store.documents.write([*put, DocumentWrite("monitor", "a", "red", "{}", None, T0)], T0)

            def place(one: Document) -> Any:
                return one.wake_at, one.id

            for given in _given(_DOCUMENTS, 3):
                wanted = DocumentFilter("channel", **given)
                expected = [
                    one
                    for one in every
                    if one.kind == "channel"
                    and (wanted.ids is None or one.id in wanted.ids)
                    and wanted.team in (None, one.team)
                    and (one.wake_at is not None or not wanted.waking)
                ]
                expected.sort(key=place if wanted.waking else lambda one: one.id)
                assert await store.documents.find(wanted) == expected, given
                past = [one for one in expected if one.id > "a"]
                assert await store.documents.find(wanted, "a", 1) == past[:1], given

    async def test_filters_of_runs_combine(self) -> None:
        async with self.opened("a", "b") as store:
            for minute in (1, 2, 4, 5):
                for start in (await claim(store, T0 + minute * MINUTE)).starts:
                    await store.runs.settle([Settlement(start, ME, "succeeded", start.started_at + 1)])
                manual = await store.runs.trigger(1, ME, T0 + minute * MINUTE + 2)
                assert manual is not None
                await store.runs.settle([Settlement(manual, ME, "succeeded", manual.started_at + 1)])
            every = await store.history.runs(RunFilter(1))
            assert len(every) == 8
            for given in _given(_RUNS, 4):
                wanted = RunFilter(1, **given)

                def fits(run: Run, wanted: RunFilter = wanted) -> bool:
                    return (
                        (wanted.from_at is None or run.run_for >= wanted.from_at)
                        and (wanted.to_at is None or run.run_for <= wanted.to_at)
                        and wanted.kind in (None, run.kind)
                        and (wanted.instants is None or run.run_for in wanted.instants)
                    )

                expected = [run for run in every if fits(run)]
                assert await store.history.runs(wanted) == expected, given
                assert await store.history.runs(wanted, 2, newest_first=True) == expected[::-1][:2], given

    async def test_runs_of_several_schedules_come_in_the_order_of_their_ends(self) -> None:
        async with self.opened("a", "b", "c") as store:
            for minute in (1, 2, 3):
                for start in reversed((await claim(store, T0 + minute * MINUTE)).starts[:2]):
                    outcome: Any = "failed" if (start.sid, minute) == (2, 3) else "succeeded"
                    await store.runs.settle([Settlement(start, ME, outcome, start.started_at + 1)])
            found = await store.history.past_runs([2, 1, 3, 2, 99], None, 2)
            assert [(run.sid, (run.run_for - T0) // MINUTE) for run in found] == [(1, 3), (1, 2), (2, 3), (2, 2)]
            assert await store.history.past_runs([1], None, 2) == found[:2]
            assert [run.outcome for run in await store.history.past_runs([2], None, 1)] == ["failed"]
            assert await store.history.past_runs([], None, 2) == []
