from pathlib import Path

import pytest

from noonbell.ports import Store
from noonbell.store.sqlite import SqliteStore, settling
from noonbell.testing.storage_suite import StorageSuite


class TestSqliteStore(StorageSuite):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path
        self.made = 0

    async def make_store(self) -> Store:
        self.made += 1
        return SqliteStore(self.path / f"{self.made}.db")

    async def reopen(self, store: Store) -> Store:
        assert isinstance(store, SqliteStore)
        return SqliteStore(store.path)


class TestSqliteStoreInPlace(TestSqliteStore):
    """The same, on the event loop's own thread."""

    async def make_store(self) -> Store:
        self.made += 1
        return SqliteStore(self.path / f"{self.made}.db", threaded=False)

    async def reopen(self, store: Store) -> Store:
        assert isinstance(store, SqliteStore)
        return SqliteStore(store.path, threaded=False)


class TestSqliteStoreInBursts(TestSqliteStoreInPlace):
    """The same, where every end travels the way that otherwise only those of a burst do."""

    @pytest.fixture(autouse=True)
    def _always_a_burst(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(settling, "LEAST_ALIKE", 1)
