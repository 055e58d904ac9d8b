"""One suite for every store: what a ledger must do, whatever it is kept in.

    from noonbell.testing import StorageSuite

    class TestMyStore(StorageSuite):
        async def make_store(self):
            return MyStore(...)                 # new and empty
        async def reopen(self, store):
            return MyStore(...)                 # the same data, through another handle

It needs a runner that awaits `async def test_...` methods and makes a new instance of the class for each (pytest with
pytest-asyncio in auto mode does); nothing of it is imported here. For readable failures call
`pytest.register_assert_rewrite("noonbell.testing.storage_cases")` before the import.

The suite says nothing about speed, about damage to stored rows or about what a store does when its server or disk
fails: those differ from store to store.
"""

from __future__ import annotations

from noonbell.testing.storage_cases.claiming import ClaimingCases
from noonbell.testing.storage_cases.declaring import DeclaringCases
from noonbell.testing.storage_cases.documents import DocumentCases
from noonbell.testing.storage_cases.engines import EngineCases
from noonbell.testing.storage_cases.filters import FilterCases
from noonbell.testing.storage_cases.lasting import LastingCases
from noonbell.testing.storage_cases.messages import MessageCases
from noonbell.testing.storage_cases.pruning import PruningCases
from noonbell.testing.storage_cases.reading import ReadingCases
from noonbell.testing.storage_cases.settling import SettlingCases
from noonbell.testing.storage_cases.snapshots import SnapshotCases
from noonbell.testing.storage_cases.waking import WakingCases


class StorageSuite(
    DeclaringCases,
    ClaimingCases,
    SettlingCases,
    ReadingCases,
    SnapshotCases,
    PruningCases,
    MessageCases,
    DocumentCases,
    FilterCases,
    LastingCases,
    EngineCases,
    WakingCases,
):
    """Every case. A subclass provides `make_store` and `reopen`; the suite opens and closes what they return."""
