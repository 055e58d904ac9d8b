"""What all parts of access share: the store, the clock, who acts, and what is remembered."""

from __future__ import annotations

import copy
import hashlib
from typing import Any, Self

import msgspec

from noonbell.access.logins import Logins
from noonbell.access.passwords import Passwords
from noonbell.access.records import DEFAULT_TEAM, KeyBody
from noonbell.core.records import AuditEvent, Document
from noonbell.ports import Clock, Ledger

_encode = msgspec.json.Encoder().encode


def digest(text: str) -> str:
    """What is stored of something random that nobody may learn from the store."""
    return hashlib.sha256(text.encode()).hexdigest()


class _Shared:
    """What all views on one store have in common."""

    def __init__(self, store: Ledger, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.logins = Logins(store, clock)
        self.passwords = Passwords()
        self.known: dict[str, tuple[float, Document, KeyBody]] = {}  # by key id, with when it was read
        self.uses: dict[str, int] = {}  # by key id: the last use of a key, where it is not written yet


class Acting:
    """Somebody who acts on one store."""

    def __init__(self, store: Ledger, clock: Clock, actor: str = "api") -> None:
        self._shared = _Shared(store, clock)
        self._actor = actor

    def acting(self, actor: str) -> Self:
        """The same, in the name of somebody else."""
        view = copy.copy(self)
        view._actor = actor  # noqa: SLF001 - it is one of us
        return view

    @property
    def _store(self) -> Ledger:
        return self._shared.store

    def _now(self) -> int:
        return self._shared.clock.now()

    def _told(self, event: str, subject: str, detail: Any, team: str = DEFAULT_TEAM) -> AuditEvent:
        return AuditEvent(self._now(), event, subject, self._actor, _encode(detail).decode(), team)
