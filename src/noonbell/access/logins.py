"""How often a login may fail.

Failures are counted for each account and for each address, in the store, so that a restart or a second process forgets
nothing. The first FREE ones cost nothing. After that each doubles a pause, in which even the right password is not
looked at. For an account the pause stays short, so that nobody can lock another out for long; an address that goes on
waits up to an hour. A quarter of an hour without a failure forgets them.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from noonbell.access.records import DEFAULT_TEAM, LOGIN_FAILURES, FailuresBody
from noonbell.core.records import DocumentWrite
from noonbell.errors import DocumentConflictError, LoginRefusedError
from noonbell.ports import Clock, DocumentStore

FREE: Final = {"account": 5, "address": 20}
_LONGEST: Final = {"account": 30_000_000, "address": 3_600_000_000}
_FORGOTTEN: Final = 900_000_000
_SECOND: Final = 1_000_000
_TRIES: Final = 10


class Logins:
    """The count of failed logins."""

    def __init__(self, store: DocumentStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def require_patience(self, name: str, address: str) -> None:
        """Raise LoginRefusedError while this account or address has to wait."""
        now = self._clock.now()
        ids = {_id(kind, value): kind for kind, value in (("account", name), ("address", address))}
        wait = 0
        for document in await self._store.get_documents(LOGIN_FAILURES, list(ids)):
            kind, body = ids[document.id], _read(document.body)
            wait = max(wait, body.last_at + _pause(kind, body.failures) - now)
        if wait > 0:
            seconds = -(-wait // _SECOND)
            raise LoginRefusedError(f"Too many logins have failed; try again in {seconds} s", seconds)

    async def failed(self, name: str, address: str) -> None:
        for kind, value in (("account", name), ("address", address)):
            await self._count(kind, _id(kind, value))

    async def succeeded(self, name: str, address: str) -> None:
        """The account has its right password; the address may still be guessing at others."""
        del address
        await self._store.drop_documents(LOGIN_FAILURES, [_id("account", name)])

    async def _count(self, kind: str, chosen: str) -> None:
        for _ in range(_TRIES):
            now = self._clock.now()
            found = await self._store.get_documents(LOGIN_FAILURES, [chosen])
            before = _read(found[0].body) if found else FailuresBody(0, now)
            forgotten = now - before.last_at > max(_FORGOTTEN, _pause(kind, before.failures))
            body = FailuresBody(1 if forgotten else before.failures + 1, now)
            write = DocumentWrite(
                LOGIN_FAILURES, chosen, DEFAULT_TEAM, msgspec.json.encode(body).decode(),
                found[0].version if found else 0, now + max(_FORGOTTEN, _LONGEST[kind]),
            )  # fmt: skip
            try:
                await self._store.put_documents([write], now)
            except DocumentConflictError:
                continue  # somebody fails beside us: count his first
            return


def _pause(kind: str, failures: int) -> int:
    beyond = failures - FREE[kind]
    return 0 if beyond < 0 else min(_LONGEST[kind], _SECOND << min(beyond, 40))


def _id(kind: str, value: str) -> str:
    """A name may be long and strange, and an address is nobody else's business."""
    return f"{kind}:{hashlib.sha256(value.encode('utf-8', 'replace')).hexdigest()}"


_read = msgspec.json.Decoder(FailuresBody).decode
