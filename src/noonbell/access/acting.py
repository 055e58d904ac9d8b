"""The state that all parts of access share: the store, the clock, the actor, and the cache of known keys."""

from __future__ import annotations

import copy
import hashlib
from typing import Any, Self

import msgspec

from noonbell.access.access_records import DEFAULT_TEAM, KeyBody
from noonbell.access.logins import Logins
from noonbell.access.passwords import Passwords
from noonbell.core.records import AuditEvent, Document
from noonbell.ports import Clock, Ledger

_encode = msgspec.json.Encoder().encode


def digest(text: str) -> str:
    """Return the digest under which a random token is stored, so that the token cannot be learnt from the store."""
    return hashlib.sha256(text.encode()).hexdigest()


class _Shared:
    """The state that all views on one store have in common."""

    def __init__(self, store: Ledger, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.logins = Logins(store, clock)
        self.passwords = Passwords()
        self.known: dict[str, tuple[float, Document, KeyBody]] = {}  # by key id, with when it was read
        self.uses: dict[str, int] = {}  # by key id: the last use of a key, where it is not written yet


class Acting:
    """A view of one store in the name of one actor."""

    def __init__(self, store: Ledger, clock: Clock, actor: str = "api") -> None:
        self._shared = _Shared(store, clock)
        self._actor = actor

    def acting(self, actor: str) -> Self:
        """Return the same view in the name of another actor."""
        view = copy.copy(self)
        view._actor = actor  # noqa: SLF001 - of the same class
        return view

    @property
    def _store(self) -> Ledger:
        return self._shared.store

    def _now(self) -> int:
        return self._shared.clock.now()

    def _audit_event(self, event: str, subject: str, detail: Any, team: str = DEFAULT_TEAM) -> AuditEvent:
        return AuditEvent(self._now(), event, subject, self._actor, _encode(detail).decode(), team)
