"""Many reads in one transaction: what the stores' `snapshot` is made of.

A snapshot is a copy of the store whose parts are built on a transaction that is open already. Every verb that reads
works on it, so that no read is written twice. What differs between the stores is how the transaction is held open.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

from noonbell.errors import StoreError

T = TypeVar("T")


def in_one_step(reading: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end without an event loop; raises RuntimeError where it has to wait for something."""
    try:
        reading.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    reading.close()
    raise RuntimeError("A snapshot waits for nothing but the verbs of its own store")


def refuse_writing(*_: Any, **__: Any) -> NoReturn:
    raise StoreError("A snapshot of the store is for reading only")
