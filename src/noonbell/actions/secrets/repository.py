"""The secrets of a store: put, listed, removed, used in requests, moved to a new master key.

Everything but `values` is for people and shows no value; `values` is for code that fills in requests. Without a master
key nothing is stored and nothing is read.

Rotation reads a page of records under older keys, wraps their data keys again and writes those whose wrapping is still
the one that was read: a value that was replaced in the meantime is left as it is, being under the newest key already.
So it can run beside any number of readers and writers, be stopped anywhere and be started again. A record that does
not open is reported and left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from noonbell.actions.secrets.secret_records import (
    NAME,
    SealedSecret,
    SecretFacts,
    SecretStore,
    check_identity,
    check_value,
)
from noonbell.errors import MasterKeyMissingError, SecretInvalidError, SecretUnreadableError

if TYPE_CHECKING:
    from noonbell.actions.secrets.vault import Vault

_log: Final = logging.getLogger("noonbell.secrets")
_MOST_TRIES: Final = 20
_MOST_PASSES: Final = 10


class Rotation(NamedTuple):
    """The result of a rotation: how many were wrapped again, and (team, name) of those that do not open."""

    rewrapped: int
    unreadable: list[tuple[str, str]]


class SecretRepository:
    """The secrets of one store. `clock` gives microseconds since 1970."""

    def __init__(self, store: SecretStore, vault: Vault | None, clock: Callable[[], int]) -> None:
        self._store = store
        self._vault = vault
        self._clock = clock

    async def put(self, team: str, name: str, value: str) -> SecretFacts:
        """Store a secret, or a new value of one that is there."""
        vault = self._opened()
        check_identity(team, name, 1)
        check_value(value)
        for _ in range(_MOST_TRIES):
            known = next(iter(await self._store.get_secrets(team, [name])), None)
            sealed = vault.seal(
                value,
                team=team,
                name=name,
                version=1 if known is None else known.version + 1,
                now=self._clock(),
                created_at=None if known is None else known.created_at,
            )
            # another writer may have put a value, or removed the secret, since it was looked up
            if await self._store.put_secret(sealed):
                return facts(sealed)
        raise SecretInvalidError("name", f'"{name}" is being changed concurrently; try again')

    async def listed(self, team: str) -> list[SecretFacts]:
        return [facts(sealed) for sealed in await self._store.list_secrets(team)]

    async def remove(self, team: str, name: str) -> bool:
        """Remove a secret. False: there is none."""
        return await self._store.drop_secret(team, name)

    async def values(self, team: str, names: Iterable[str]) -> dict[str, str]:
        """The values of those names that exist. A name that is missing is the reference's to complain about."""
        wanted = sorted({name for name in names if NAME.fullmatch(name)})
        if not wanted:
            return {}
        vault = self._opened()
        return {sealed.name: vault.open(sealed) for sealed in await self._store.get_secrets(team, wanted)}

    async def rotate(self, page: int = 100, *, progress: Callable[[int], None] | None = None) -> Rotation:
        """Move every secret to the newest master key. `progress` gets how many have been wrapped again so far."""
        vault = self._opened()
        rewrapped = 0
        unreadable: list[tuple[str, str]] = []
        for _ in range(_MOST_PASSES):
            # An instance that does not have the newest key yet may seal under an older one in the meantime: look again.
            done, unreadable = await self._rotate_once(vault, page, rewrapped, progress)
            if done == rewrapped:
                break
            rewrapped = done
        return Rotation(rewrapped, unreadable)

    async def _rotate_once(
        self, vault: Vault, page: int, done: int, progress: Callable[[int], None] | None
    ) -> tuple[int, list[tuple[str, str]]]:
        unreadable: list[tuple[str, str]] = []
        after: tuple[str, str] | None = None
        while found := await self._store.secrets_under_other_keys(vault.key_version, page, after):
            pairs = []
            for sealed in found:
                try:
                    pairs.append((sealed, vault.rewrap(sealed)))
                except SecretUnreadableError as error:
                    _log.warning("rotation leaves a secret alone: %s", error)
                    unreadable.append((sealed.team, sealed.name))
            if pairs:
                done += await self._store.rewrap_secrets(pairs)
                if progress is not None:
                    progress(done)
            after = (found[-1].team, found[-1].name)
        return done, unreadable

    def _opened(self) -> Vault:
        if self._vault is None:
            raise missing_key()
        return self._vault


def missing_key() -> MasterKeyMissingError:
    return MasterKeyMissingError(
        "the settings", "no master key, so no secret is stored or read; make one with: noonbell keys new FILE"
    )


def facts(sealed: SealedSecret) -> SecretFacts:
    return SecretFacts(
        sealed.team, sealed.name, sealed.version, sealed.key_version, sealed.created_at, sealed.updated_at
    )
