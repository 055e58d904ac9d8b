"""Signs requests as Standard Webhooks (https://www.standardwebhooks.com) asks, and names the run to the receiver.

    webhook-id               the run's id, the same for all its attempts; also as Idempotency-Key
    webhook-timestamp        when this attempt was sent
    webhook-signature        one signature for each key in use, newest first
    Noonbell-Scheduled-For   the occurrence, as an instant in UTC
    Noonbell-Attempt         1, 2, 3…

The signature covers id, timestamp and body. Keys belong to a schedule and are replaced without a gap: for a while
both sign, and the receiver takes either. Sealing the keys at rest is up to their store.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Final
from urllib.parse import quote

import msgspec

from noonbell.core.instants import moment
from noonbell.errors import SigningKeyError
from noonbell.receive.standard import format_key, parse_key, signature

_KEY_BYTES: Final = 32
_MOST_KEYS: Final = 5
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_:@~-]*", re.ASCII)


class SigningKey(msgspec.Struct, frozen=True, gc=False):
    """A key of a schedule. Without `expires_at` it is the one in use; with it, one that is being replaced."""

    key: str  # whsec_…
    created_at: int  # microseconds since 1970 (UTC)
    expires_at: int | None = None

    def __repr__(self) -> str:
        return f"SigningKey(created_at={self.created_at}, expires_at={self.expires_at})"


def new_key(now: int) -> SigningKey:
    return SigningKey(format_key(secrets.token_bytes(_KEY_BYTES)), now)


def rotated(keys: Sequence[SigningKey], now: int, overlap: timedelta) -> tuple[SigningKey, ...]:
    """A fresh key in front; those before sign on for `overlap`, or until their own end if that is sooner."""
    if overlap < timedelta(0):
        raise SigningKeyError(f"the overlap {overlap} must not be negative")
    last = now + overlap // timedelta(microseconds=1)
    ending = [
        msgspec.structs.replace(key, expires_at=last if key.expires_at is None else min(key.expires_at, last))
        for key in in_use(keys, now)
    ]
    still = [key for key in ending if key.expires_at is not None and key.expires_at > now]
    if len(still) >= _MOST_KEYS:
        raise SigningKeyError(f"{len(still)} keys are in use; wait until one has ended, or rotate without overlap")
    return new_key(now), *still


def in_use(keys: Iterable[SigningKey], now: int) -> list[SigningKey]:
    """The keys that sign now, newest first."""
    found = [key for key in keys if key.expires_at is None or key.expires_at > now]
    return sorted(found, key=lambda key: -key.created_at)


class Signer:
    """Signs with every key in use. Made once for a schedule, or whenever its keys change."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[str]) -> None:
        if not 1 <= len(keys) <= _MOST_KEYS:
            raise SigningKeyError(f"1 to {_MOST_KEYS} keys sign at once, not {len(keys)}")
        self._keys = [parse_key(key) for key in keys]

    def __repr__(self) -> str:
        return f"Signer({len(self._keys)} keys)"

    def headers(self, *, run_id: str, body: bytes, sent_at: int, scheduled_for: int, attempt: int) -> dict[str, str]:
        """The headers of one attempt. Instants are microseconds since 1970 (UTC); `body` is what goes over the wire."""
        message_id = wire_id(run_id)
        timestamp = sent_at // 1_000_000
        return {
            **run_headers(run_id=run_id, scheduled_for=scheduled_for, attempt=attempt),
            "webhook-timestamp": str(timestamp),
            "webhook-signature": " ".join(signature(key, message_id, timestamp, body) for key in self._keys),
        }


def run_headers(*, run_id: str, scheduled_for: int, attempt: int) -> dict[str, str]:
    """Return the headers by which every request names its run, signed or not."""
    message_id = wire_id(run_id)
    return {
        "webhook-id": message_id,
        "Idempotency-Key": message_id,
        "Noonbell-Scheduled-For": _written(scheduled_for),
        "Noonbell-Attempt": str(attempt),
    }


@lru_cache(maxsize=8_192)
def _written(at: int) -> str:
    return moment(at).isoformat().replace("+00:00", "Z")


def wire_id(run_id: str) -> str:
    """The id of a run as a header can carry it: percent-encoded where need be, the full stop included.

    A full stop separates the signed parts, so one in the id would let the same bytes be read in two ways. No two runs
    get the same.
    """
    return run_id if _PLAIN_ID.fullmatch(run_id) else quote(run_id, safe=":@").replace(".", "%2E")
