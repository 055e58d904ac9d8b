from pathlib import Path

import pytest

from noonbell.ports import Ledger
from noonbell.store.sqlite import SqliteStore, slot_ends, turns
from noonbell.testing.storage_suite import StorageSuite
from tests.store.spilling import SpillingStore


class TestSqliteStore(StorageSuite):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path
        self.made = 0

    async def make_store(self) -> Ledger:
        self.made += 1
        return SqliteStore(self.path / f"{self.made}.db")

    async def reopen(self, store: Ledger) -> Ledger:
        assert isinstance(store, SqliteStore)
        return SqliteStore(store.path)


class TestSqliteStoreInPlace(TestSqliteStore):
    """The same, on the event loop's own thread."""

    async def make_store(self) -> Ledger:
        self.made += 1
        return SqliteStore(self.path / f"{self.made}.db", threaded=False)

    async def reopen(self, store: Ledger) -> Ledger:
        assert isinstance(store, SqliteStore)
        return SqliteStore(store.path, threaded=False)


class TestSqliteStoreInBursts(TestSqliteStoreInPlace):
    """The same, where every turn and end travels the way that otherwise only those of a burst do."""

    @pytest.fixture(autouse=True)
    def _always_a_burst(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(turns, "LEAST_ALIKE", 1)
        monkeypatch.setattr(slot_ends, "LEAST_ALIKE", 1)


class TestSqliteStoreSpilled(TestSqliteStoreInPlace):
    """The same, where no run stays in the slot of its schedule: a caller cannot see where one is."""

    async def make_store(self) -> Ledger:
        self.made += 1
        return SpillingStore(self.path / f"{self.made}.db", threaded=False)

    async def reopen(self, store: Ledger) -> Ledger:
        assert isinstance(store, SpillingStore)
        return SpillingStore(store.path, threaded=False)
