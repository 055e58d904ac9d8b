"""The signing keys of schedules and channels, sealed like secrets: one document for all keys of one of them.

A schedule has no key until the first request for one. When it is replaced, old and new key both sign for a while.
Unlike secrets, signing keys can be shown: the receiver of the requests needs them.

A channel goes by "channel:" and its id, which no new schedule may have as its own. The caller names a team,
and neither sees, changes nor drops the keys of another, under whatever id they are.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from noonbell.actions.secrets.stored_secrets import SecretDocuments
from noonbell.actions.signatures import SigningKey, in_use, new_key, rotated
from noonbell.errors import SigningKeyError
from noonbell.ports import Clock, Ledger

if TYPE_CHECKING:
    from noonbell.actions.secrets.secret_records import SealedSecret
    from noonbell.actions.secrets.vault import Vault

_KIND: Final = "signing_key"
_MOST_TRIES: Final = 20
_FRESH_SECONDS: Final = 5.0
_MOST_KEPT: Final = 10_000
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[SigningKey, ...]).decode


class SigningKeys:
    """The signing keys of a store's schedules. What was read is used for some seconds without another look."""

    def __init__(self, store: Ledger, vault: Vault, clock: Clock, actor: str) -> None:
        self._store = store
        self._documents = SecretDocuments(store, clock.now, actor, _KIND)
        self._vault = vault
        self._clock = clock
        self._kept: dict[tuple[str, str], tuple[float, tuple[SigningKey, ...]]] = {}  # by team and id

    def acting(self, actor: str) -> SigningKeys:
        """Return the same keys, their cache included, in the name of another actor, whom the audit log then names."""
        view = copy(self)
        vars(view).update(_documents=SecretDocuments(self._store, self._clock.now, actor, _KIND))
        return view

    async def of(self, schedule_id: str, team: str) -> list[SigningKey]:
        """The keys that sign now, newest first; the first is made here."""
        elapsed, now = self._clock.elapsed(), self._clock.now()
        kept = self._kept.get((team, schedule_id))
        if kept is not None and elapsed - kept[0] <= _FRESH_SECONDS:
            return in_use(kept[1], now)
        return in_use(await self._changed(schedule_id, team, lambda keys: keys or (new_key(now),)), now)

    async def made(self, schedule_id: str, team: str) -> list[SigningKey]:
        """Return the same as `of`, but make none: empty if the first was not requested yet."""
        known = next(iter(await self._documents.get_secrets(team, [schedule_id])), None)
        return [] if known is None else in_use(self._opened(known), self._clock.now())

    async def replace(self, schedule_id: str, team: str, overlap: timedelta) -> list[SigningKey]:
        """A fresh key in front; those before sign on for `overlap`."""
        now = self._clock.now()
        return in_use(await self._changed(schedule_id, team, lambda keys: rotated(keys, now, overlap)), now)

    async def drop(self, schedule_id: str, team: str) -> bool:
        self._kept.pop((team, schedule_id), None)
        return await self._documents.drop_secret(team, schedule_id)

    async def _changed(
        self, schedule_id: str, team: str, change: Callable[[tuple[SigningKey, ...]], tuple[SigningKey, ...]]
    ) -> tuple[SigningKey, ...]:
        for _ in range(_MOST_TRIES):
            known = next(iter(await self._documents.get_secrets(team, [schedule_id])), None)
            before = () if known is None else self._opened(known)
            after = change(before)
            # another writer may have changed them since they were looked up
            if after == before or await self._documents.put_secret(self._sealed(schedule_id, team, known, after)):
                self._keep(schedule_id, team, after)
                return after
        if known is None:
            raise SigningKeyError(f'another team has keys under "{schedule_id}"; choose another id')
        raise SigningKeyError(f'the keys of "{schedule_id}" are being changed concurrently; try again')

    def _opened(self, sealed: SealedSecret) -> tuple[SigningKey, ...]:
        return _decode(self._vault.open(sealed))

    def _sealed(
        self, schedule_id: str, team: str, known: SealedSecret | None, keys: tuple[SigningKey, ...]
    ) -> SealedSecret:
        return self._vault.seal(
            _encode(keys).decode(),
            team=team,
            name=schedule_id,
            version=1 if known is None else known.version + 1,
            now=self._clock.now(),
            created_at=None if known is None else known.created_at,
            kind=_KIND,
        )

    def _keep(self, schedule_id: str, team: str, keys: tuple[SigningKey, ...]) -> None:
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[team, schedule_id] = (self._clock.elapsed(), keys)
