"""The values that a process knows, by team, and the maskers made of them.

A team's secrets are read together, opened once, and kept until their records change; a caller may say how
old that knowledge may be. A masker is made again only when the set of values has changed, in a thread, because that
takes several milliseconds for each value.

A value that was replaced or removed is masked on: a request that was sent with it may still be answered. Of each name
the last few are kept, as long as the process lives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from noonbell.actions.secrets.masking import NOTHING, Masker, mask_by_all
from noonbell.errors import SecretUnreadableError

if TYPE_CHECKING:
    from noonbell.actions.secrets.secret_records import SealedSecret, SecretStore
    from noonbell.actions.secrets.vault import Vault

_PAST_VALUES: Final = 8


class Team:
    """The known secrets of one team."""

    def __init__(self) -> None:
        self.records: dict[str, SealedSecret] = {}
        self.values: dict[str, str | SecretUnreadableError] = {}
        self.masker = NOTHING
        self.read_at: float | None = None  # by the clock that is never set
        self.reading = asyncio.Lock()
        self.changes = 0  # that were made here
        self._masked: frozenset[str] = frozenset()
        self._past: dict[str, deque[str]] = {}

    async def learn(self, found: Iterable[SealedSecret], open_: Callable[[SealedSecret], str]) -> None:
        """Take over the records as they are now. The values count when the masker that knows them is there."""
        records = {sealed.name: sealed for sealed in found}
        values: dict[str, str | SecretUnreadableError] = {}
        for name, sealed in records.items():
            if sealed == self.records.get(name):
                values[name] = self.values[name]
                continue
            try:
                values[name] = open_(sealed)
            except SecretUnreadableError as error:
                values[name] = error
        for name, value in values.items():
            if isinstance(value, str) and value not in (past := self._past.setdefault(name, deque())):
                past.append(value)
                if len(past) > _PAST_VALUES:
                    past.popleft()
        masked = frozenset(value for past in self._past.values() for value in past)
        if masked != self._masked:
            self.masker = await asyncio.to_thread(ready_masker, masked, self.masker)
            self._masked = masked
        self.records, self.values = records, values


class KnownSecrets:
    """The known secrets of all teams. `elapsed` gives seconds on a monotonic clock."""

    def __init__(self, store: SecretStore, vault: Vault, elapsed: Callable[[], float]) -> None:
        self._store = store
        self._vault = vault
        self._elapsed = elapsed
        self._teams: dict[str, Team] = {}

    async def team(self, team: str, *, not_older_seconds: float) -> Team:
        """Return the team's secrets, read again where they are older than that."""
        known = self._teams.setdefault(team, Team())
        oldest = self._elapsed() - not_older_seconds
        if known.read_at is None or known.read_at < oldest:
            async with known.reading:
                # a concurrent read may have brought what this call needs
                if known.read_at is None or known.read_at < oldest:
                    began, changes = self._elapsed(), known.changes
                    await known.learn(await self._store.list_secrets(team), self._vault.open)
                    # a change that was made during the read may not have been seen
                    known.read_at = began if changes == known.changes else None
        return known

    def masker(self, team: str) -> Masker:
        known = self._teams.get(team)
        return NOTHING if known is None else known.masker

    def forget(self, team: str) -> None:
        """Read it again before its next use; what was known is masked on."""
        if team in self._teams:
            self._teams[team].read_at = None
            self._teams[team].changes += 1

    def holds(self, team: str) -> bool:
        return team in self._teams

    @property
    def maskers(self) -> list[Masker]:
        # a copy first: a log line of another thread may ask while a team is added
        return [known.masker for known in list(self._teams.values()) if known.masker]

    def mask(self, text: str) -> str:
        """The text without any secret of any team."""
        return mask_by_all(text, self.maskers)


def ready_masker(values: Iterable[str], like: Masker) -> Masker:
    """A masker whose expressions are compiled, as far as requests with these values need them."""
    known = list(values)
    masker = Masker(known, like=like)
    for value in known:
        for form in (value, quote(value, safe="")):
            masker.text(form)
            masker.data(form.encode())
    return masker
