"""What the commands about channels and rules share: a store, its secrets, and the way out."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.secrets.keys import find_keys
from noonbell.actions.secrets.secrets import Secrets
from noonbell.cli.complaints import Complaint
from noonbell.cli.sealed_store import actor
from noonbell.engine import SystemClock
from noonbell.errors import NoonbellError
from noonbell.notify import Channels, NotifyStore, Rules
from noonbell.store.opening import open_store, require_ledger

T = TypeVar("T")


class Faces(NamedTuple):
    channels: Channels
    rules: Rules


def with_notify(
    url: str,
    ask: Callable[[Faces], Awaitable[T]],
    *,
    as_json: bool,
    key_file: Path | None = None,
    needs_keys: bool = False,
    read_only: bool = False,
    allow: tuple[str, ...] = (),
    apprise: bool = False,
) -> T:
    """Open the store, ask, and close it; what goes wrong becomes a complaint."""

    async def session() -> T:
        keys = find_keys(key_file, os.environ) if needs_keys else None
        egress = Egress(EgressPolicy(allow=allow))
        require_ledger(url)
        store = cast("NotifyStore", open_store(url, read_only=read_only))
        await store.open()
        try:
            clock, who = SystemClock(), actor()
            secrets = Secrets(store, keys, clock, who)
            channels = Channels(store, clock, secrets=secrets, egress=egress, actor=who, apprise=apprise)
            return await ask(Faces(channels, Rules(store, clock, actor=who)))
        finally:
            await store.close()

    try:
        return asyncio.run(session())
    except NoonbellError as error:
        facts: dict[str, Any] = {"store": re.sub(r"//[^/]*@", "//…@", url), "kind": type(error).__name__}
        raise Complaint(str(error), facts, as_json=as_json) from None
