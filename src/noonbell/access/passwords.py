"""Passwords: argon2id, in threads, a few at a time.

Each takes tens of milliseconds and 64 MiB on purpose. In the event loop that would hold up every run, and without a
limit a burst of logins would take all memory.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from noonbell.errors import AccessError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

_AT_ONCE: Final = 2


class Passwords:
    """Hashes passwords and knows them again."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._made: PasswordHasher | None = None
        self._dummy_hash: str | None = None

    async def hash(self, password: str) -> str:
        async with self._room:
            return await asyncio.to_thread(self._hasher().hash, password)

    async def fits(self, hashed: str | None, password: str) -> bool:
        """Return whether it is the password. Without a hash it takes as long, and the result is False."""
        async with self._room:
            return await asyncio.to_thread(self._fits, hashed, password)

    def _fits(self, hashed: str | None, password: str) -> bool:
        hasher = self._hasher()
        from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - comes with an extra

        if self._dummy_hash is None:
            self._dummy_hash = hasher.hash("no user has this password")
        try:
            hasher.verify(self._dummy_hash if hashed is None else hashed, password)
        except (VerificationError, InvalidHashError):
            return False
        return hashed is not None

    def _hasher(self) -> PasswordHasher:
        if self._made is None:
            try:
                from argon2 import PasswordHasher  # noqa: PLC0415 - comes with an extra
            except ModuleNotFoundError as error:
                raise AccessError('Passwords need a hash function: install "noonbell[server]"') from error
            self._made = PasswordHasher()
        return self._made
