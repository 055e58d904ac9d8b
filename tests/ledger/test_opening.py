"""From an address to a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noonbell.errors import StoreUrlError
from noonbell.store.memory import MemoryStore
from noonbell.store.opening import open_store, sqlite_path
from noonbell.store.sqlite import SqliteStore


def test_addresses() -> None:
    relative, absolute = open_store("sqlite:///data/app.db"), open_store("sqlite:////var/lib/app.db")
    assert isinstance(relative, SqliteStore)
    assert isinstance(absolute, SqliteStore)
    assert (relative.path, absolute.path) == (Path("data/app.db"), Path("/var/lib/app.db"))
    assert isinstance(open_store("memory://"), MemoryStore)
    assert open_store("memory://") is not open_store("memory://")
    store = MemoryStore()
    assert open_store(store) is store


def test_nothing_is_touched_before_it_is_opened(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/app.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", '"" is not the address of a store'),
        ("app.db", "did you mean sqlite:///app.db"),
        ("sqlite:app.db", '"sqlite:app.db" is not the address of a store; right are sqlite:///app.db'),
        ("sqlite://app.db", '"sqlite://app.db" is not the address of a store'),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "names no file; right are .*memory://"),
        ("sqlite:///app.db?mode=ro", "options are not part of the address"),
        ("memory://x", '"memory://x" is not the address of a store'),
    ],
)
def test_what_is_no_address_is_named_with_what_is_right(url: str, said: str) -> None:
    with pytest.raises(StoreUrlError, match=said) as caught:
        open_store(url)
    assert caught.value.details["value"] == url
    with pytest.raises(StoreUrlError):
        sqlite_path(url)


@pytest.mark.parametrize("value", [None, 5, Path("app.db"), object()])
def test_what_is_no_store_is_refused(value: Any) -> None:
    with pytest.raises(StoreUrlError, match="neither a store nor the address of one; right are"):
        open_store(value)
