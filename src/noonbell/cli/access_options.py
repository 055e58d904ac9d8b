"""The shared part of the commands for users and keys: opening a store and its `Access`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from noonbell.access import Access
from noonbell.cli.cli_errors import CliError
from noonbell.cli.secret_options import actor
from noonbell.engine import SystemClock
from noonbell.errors import NoonbellError
from noonbell.store.opening import open_store, require_ledger

T = TypeVar("T")
_CREATE: Final = "noonbell admin create NAME creates a ledger there, if the address is right; so does serve"


def with_access(url: str, ask: Callable[[Access], Awaitable[T]], *, as_json: bool, create: bool = False) -> T:
    """Open the store, call the function, and close the store; errors become a `CliError`.

    With `create`, a missing store is created: the first admin may be created before the first start of the service.
    """

    async def session() -> T:
        if not create:
            require_ledger(url)
        store = open_store(url)
        await store.open()
        try:
            access = Access(store, SystemClock(), actor())
            await access.ensure_default_team()
            return await ask(access)
        finally:
            await store.close()

    try:
        return asyncio.run(session())
    except NoonbellError as error:
        facts = {"store": re.sub(r"//[^/]*@", "//…@", url), "kind": type(error).__name__}
        hints = (_CREATE,) if error.details.get("missing") else ()
        raise CliError(str(error), facts, hints, as_json=as_json) from None
