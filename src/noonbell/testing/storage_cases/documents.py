"""Documents: versions, teams, pages, wake-ups, and the audit in the same transaction."""

# ruff: noqa: S101 - asserting is what these cases are for
from __future__ import annotations

from noonbell.core.records import AuditEvent, Document, DocumentWrite
from noonbell.errors import DocumentConflictError
from noonbell.ports import AuditFilter, DocumentFilter
from noonbell.store.documents import due_documents, removals
from noonbell.testing.storage_cases.base import SECOND, T0, StorageCases, raises

_EVENT = AuditEvent(T0, "channel.created", "a", "an actor", "{}")


def _write(one: str, team: str = "red", *, body: str = "{}", expected: int | None = None, wake_at: int | None = None,
           kind: str = "channel") -> DocumentWrite:  # fmt: skip
    return DocumentWrite(kind, one, team, body, expected, wake_at)


class DocumentCases(StorageCases):
    """The contract of the ledger's documents."""

    async def test_a_document_counts_its_writes_and_keeps_its_beginning(self) -> None:
        async with self.opened() as opened:
            store = opened
            (first,) = await store.documents.write([_write("a", body='{"x":"ö\\u0000"}')], T0)
            (second,) = await store.documents.write([_write("a", body="[]", expected=1, wake_at=T0)], T0 + SECOND)
            assert first == Document("channel", "a", "red", 1, '{"x":"ö\\u0000"}', T0, T0)
            assert second == Document("channel", "a", "red", 2, "[]", T0, T0 + SECOND, T0)
            assert await store.documents.find(DocumentFilter("channel", ["a", "b", "a"])) == [second]
            assert await store.documents.find(DocumentFilter("monitor", ["a"])) == []

    async def test_a_write_that_expects_another_version_undoes_all_of_its_batch(self) -> None:
        async with self.opened() as opened:
            store = opened
            (before,) = await store.documents.write([_write("b", expected=0)], T0)
            for expected, version in ((0, 1), (2, 1)):
                with raises(DocumentConflictError) as raised:
                    await store.documents.write([_write("a"), _write("b", expected=expected)], T0, [_EVENT])
                assert raised.error.version == version
            with raises(DocumentConflictError) as raised:
                await store.documents.write([_write("c", expected=3)], T0)
            assert raised.error.version == 0
            assert await store.documents.find(DocumentFilter("channel"), "", 10) == [before]
            assert await store.audit.page(AuditFilter(), 0, 10) == []

    async def test_an_id_of_another_team_is_taken(self) -> None:
        async with self.opened() as opened:
            store = opened
            await store.documents.write([_write("a", "red")], T0)
            with raises(DocumentConflictError) as raised:
                await store.documents.write([_write("a", "blue")], T0)
            assert raised.error.version is None
            assert [document.team for document in await store.documents.find(DocumentFilter("channel", ["a"]))] == [
                "red"
            ]

    async def test_pages_follow_the_ids_of_a_team_or_of_all(self) -> None:
        async with self.opened() as opened:
            store = opened
            await store.documents.write([_write(one, team) for one, team in zip("dbZac", "rbrbr", strict=True)], T0)
            await store.documents.write([_write("e", "r", kind="monitor")], T0)
            pages: list[str] = []
            after = ""
            while page := await store.documents.find(DocumentFilter("channel"), after, 2):
                assert len(page) <= 2
                pages.extend(document.id for document in page)
                after = page[-1].id
            assert pages == ["Z", "a", "b", "c", "d"]
            assert [
                document.id for document in await store.documents.find(DocumentFilter("channel", team="r"), "", 10)
            ] == ["Z", "c", "d"]
            assert [
                document.id for document in await store.documents.find(DocumentFilter("channel", team="r"), "Z", 1)
            ] == ["c"]

    async def test_what_is_dropped_is_gone_and_audited_once(self) -> None:
        async with self.opened() as opened:
            store = opened
            await store.documents.write([_write("a"), _write("b")], T0)
            (gone,) = await store.documents.write(audits=[_EVENT], removed=removals("channel", ["a", "x", "a"]))
            assert (gone.id, gone.version) == ("a", 1)
            assert await store.documents.write(audits=[_EVENT], removed=removals("channel", ["a"])) == []
            assert [document.id for document in await store.documents.find(DocumentFilter("channel"), "", 10)] == ["b"]
            audited = await store.audit.page(AuditFilter(), 0, 10)
            assert [event for _, event in audited] == [_EVENT]
            (again,) = await store.documents.write([_write("a", expected=0)], T0 + SECOND)
            assert (again.version, again.created_at) == (1, T0 + SECOND)

    async def test_what_is_removed_makes_room_for_what_is_put_with_it(self) -> None:
        async with self.opened() as opened:
            store = opened
            await store.documents.write([_write("a"), _write("b")], T0)
            put, gone = await store.documents.write(
                [_write("a", expected=0)], T0 + SECOND, [_EVENT], removed=removals("channel", ["a"])
            )
            assert (put.version, put.created_at, gone.version, gone.created_at) == (1, T0 + SECOND, 1, T0)
            with raises(DocumentConflictError):
                await store.documents.write([_write("a", expected=0)], T0, [_EVENT], removed=removals("channel", ["b"]))
            assert [document.id for document in await store.documents.find(DocumentFilter("channel"))] == ["a", "b"]
            assert len(await store.audit.page(AuditFilter(), 0, 10)) == 1

    async def test_a_removal_that_expects_another_version_takes_nothing_out(self) -> None:
        async with self.opened() as opened:
            store = opened
            await store.documents.write([_write("a"), _write("b")], T0)
            await store.documents.write([_write("b")], T0)
            with raises(DocumentConflictError) as raised:
                await store.documents.write(audits=[_EVENT], removed=removals("channel", ["a", "b"], 1))
            assert (raised.error.sought, raised.error.version) == ("b", 2)
            assert [document.id for document in await store.documents.find(DocumentFilter("channel"), "", 10)] == [
                "a",
                "b",
            ]
            assert await store.audit.page(AuditFilter(), 0, 10) == []
            assert len(await store.documents.write(audits=[_EVENT], removed=removals("channel", ["b"], 2))) == 1
            assert await store.documents.write(audits=[_EVENT], removed=removals("channel", ["b"], 2)) == []

    async def test_those_whose_time_has_come_are_given_the_earliest_first(self) -> None:
        async with self.opened() as opened:
            store = opened
            wakes = {"a": T0 + 3, "b": T0 + 1, "c": None, "d": T0 + 2, "e": T0 + 9}
            await store.documents.write([_write(one, wake_at=wake) for one, wake in wakes.items()], T0)
            await store.documents.write([_write("f", kind="monitor", wake_at=T0)], T0)
            found, following = await due_documents(store, "channel", T0 + 3, 10)
            assert ([document.id for document in found], following) == (["b", "d", "a"], T0 + 9)
            found, following = await due_documents(store, "channel", T0 + 3, 2)
            assert ([document.id for document in found], following) == (["b", "d"], T0 + 3)
            assert await due_documents(store, "channel", T0, 10) == ([], T0 + 1)
            assert await due_documents(store, "channel", T0 + 99, 10) != ([], None)
            await store.documents.write([_write("b", wake_at=None)], T0)
            assert [one.id for one in (await due_documents(store, "channel", T0 + 2, 10))[0]] == ["d"]
