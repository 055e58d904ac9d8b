"""Limits on failed logins.

Failures are counted for each account and for each address, in the store, so that a restart or a second process forgets
nothing. An attempt counts as a failure from its beginning, until it has succeeded: many at once are no way around. The
first FREE ones cost nothing. After that each doubles a pause, in which even the right password is not looked at. For an
account the pause stays short, so that no user can lock another out for long; an address that goes on waits up to an
hour. A quarter of an hour without a failure forgets them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from noonbell.access.access_records import DEFAULT_TEAM, LOGIN_FAILURES, FailuresBody
from noonbell.access.address_keys import counted_as
from noonbell.core.instants import SECOND
from noonbell.core.records import DocumentWrite
from noonbell.errors import DocumentConflictError, LoginRefusedError
from noonbell.ports import Clock, DocumentFilter, Ledger
from noonbell.store.documents import removals

FREE: Final = {"account": 5, "address": 20}
_LONGEST: Final = {"account": 30_000_000, "address": 3_600_000_000}
_FORGOTTEN: Final = 900_000_000
_SKEW: Final = 60 * SECOND  # how far the clocks of two processes may be apart
_TRIES: Final = 10


class Attempt(NamedTuple):
    """A login that counts as failed until it has succeeded."""

    account: str
    address: str
    before: Mapping[str, FailuresBody]
    versions: Mapping[str, int]


class Logins:
    """The count of failed logins."""

    def __init__(self, store: Ledger, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counting = asyncio.Lock()

    async def attempt(self, name: str, address: str) -> Attempt:
        """Count an attempt as failed before its password is verified; `succeeded` takes that back.

        So concurrent attempts count together: each finds the others in the count, however long a verification takes.

        Raises:
            LoginRefusedError: this account or address has to wait. That costs nothing further.
        """
        of_account, of_address = _id("account", name), _id("address", counted_as(address))
        ids = {of_account: "account", of_address: "address"}
        async with self._counting:  # only those of other processes come between the look and the write
            for _ in range(_TRIES):
                now = self._clock.now()
                found = {
                    one.id: one for one in await self._store.documents.find(DocumentFilter(LOGIN_FAILURES, list(ids)))
                }
                before = {chosen: _read(one.body) for chosen, one in found.items()}
                wait = max((_wait(ids[one], body, now) for one, body in before.items()), default=0)
                if wait > 0:
                    raise _refusal(wait)
                writes = []
                for chosen, kind in ids.items():
                    body = _one_more(kind, before.get(chosen), now)
                    writes.append(_write(kind, chosen, body, found[chosen].version if chosen in found else 0, now))
                try:
                    written = await self._store.documents.write(writes, now)
                except DocumentConflictError:
                    continue  # a concurrent attempt was recorded: read again
                return Attempt(of_account, of_address, before, {one.id: one.version for one in written})
        raise _refusal(SECOND)  # what cannot be counted is not looked at

    async def succeeded(self, attempt: Attempt) -> None:
        """The account has its right password; the address may still be guessing at others, and only this is undone."""
        await self._store.documents.write(removed=removals(LOGIN_FAILURES, [attempt.account]))
        async with self._counting:
            for _ in range(_TRIES):
                found = await self._store.documents.find(DocumentFilter(LOGIN_FAILURES, [attempt.address]))
                if not found:
                    return
                body = _read(found[0].body)
                if found[0].version == attempt.versions[attempt.address]:
                    body = attempt.before.get(attempt.address, FailuresBody(0, body.last_at))
                else:
                    body = FailuresBody(max(0, body.failures - 1), body.last_at)
                write = _write("address", attempt.address, body, found[0].version, self._clock.now())
                try:
                    await self._store.documents.write([write], self._clock.now())
                except DocumentConflictError:
                    continue
                return


def _refusal(wait: int) -> LoginRefusedError:
    seconds = -(-wait // SECOND)
    return LoginRefusedError(f"Too many logins have failed; try again in {seconds} s", seconds)


def _wait(kind: str, body: FailuresBody, now: int) -> int:
    pause = _pause(kind, body.failures)
    if pause == 0 or body.last_at - now > _SKEW:  # the clock was set back: a later failure sets no pause
        return 0
    return body.last_at + pause - now


def _one_more(kind: str, before: FailuresBody | None, now: int) -> FailuresBody:
    if before is None or now - before.last_at > max(_FORGOTTEN, _pause(kind, before.failures)):
        return FailuresBody(1, now)
    return FailuresBody(before.failures + 1, now)


def _write(kind: str, chosen: str, body: FailuresBody, version: int, now: int) -> DocumentWrite:
    kept_until = now + max(_FORGOTTEN, _LONGEST[kind])
    return DocumentWrite(LOGIN_FAILURES, chosen, DEFAULT_TEAM, msgspec.json.encode(body).decode(), version, kept_until)


def _pause(kind: str, failures: int) -> int:
    beyond = failures - FREE[kind]
    return 0 if beyond < 0 else min(_LONGEST[kind], SECOND << min(beyond, 40))


def _id(kind: str, value: str) -> str:
    """Return the digest of a name or an address: a name may be long and odd, and an address is private."""
    return f"{kind}:{hashlib.sha256(value.encode('utf-8', 'replace')).hexdigest()}"


_read = msgspec.json.Decoder(FailuresBody).decode
