"""Sealing and opening secrets: AES-256-GCM twice, with a data key of its own for every version of every secret.

    value     --data key-->    body          associated data: kind and "body", team, name, version
    data key  --master key-->  wrapped_key   associated data: kind and "key", team, name, version, version of the
                                             master key

So a record opens only as the secret that it was sealed as: changed bytes, and parts of other records, kinds or
versions, are refused. Rotation wraps the data key again and leaves the body alone. What cannot be noticed here is a
whole old record that a user with write access to the database put back, or one that was removed.

Nonces are random. That allows four thousand million wrappings under one master key, far more than there are secrets.
"""

from __future__ import annotations

import os
import struct
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from noonbell.actions.secrets.keys import KeyRing
from noonbell.actions.secrets.secret_records import SealedKind, SealedSecret, check_identity, check_value
from noonbell.errors import SecretUnreadableError

_NONCE_BYTES: Final = 12
_PADDED_TO: Final = 64


class Vault:
    """Seals under the newest master key, opens under any. Holds no secrets."""

    __slots__ = ("_ring",)

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    @property
    def key_version(self) -> int:
        return self._ring.newest

    def seal(
        self,
        value: str,
        *,
        team: str,
        name: str,
        version: int,
        now: int,
        created_at: int | None = None,
        kind: SealedKind = "secret",
    ) -> SealedSecret:
        """Seal a value as one version of a secret. `created_at` is that of its first version; none: this is it."""
        check_identity(team, name, version, kind)
        check_value(value)
        data_key = AESGCM.generate_key(bit_length=256)
        nonce = os.urandom(_NONCE_BYTES)
        return SealedSecret(
            team=team,
            name=name,
            version=version,
            key_version=self._ring.newest,
            wrapped_key=self._wrap(data_key, kind, team, name, version),
            nonce=nonce,
            body=AESGCM(data_key).encrypt(nonce, _padded(value.encode()), _bound(kind, "body", team, name, version)),
            created_at=now if created_at is None else created_at,
            updated_at=now,
            kind=kind,
        )

    def open(self, sealed: SealedSecret) -> str:
        """The value of a record; SecretUnreadableError where it is not exactly what was sealed."""
        data_key = self._unwrap(sealed)
        try:
            bound = _bound(sealed.kind, "body", sealed.team, sealed.name, sealed.version)
            return _unpadded(AESGCM(data_key).decrypt(sealed.nonce, sealed.body, bound)).decode()
        except (InvalidTag, ValueError):
            raise _unreadable(sealed, "its body was changed, or belongs to another secret or version") from None

    def rewrap(self, sealed: SealedSecret) -> SealedSecret:
        """The same record under the newest master key; the very same where it is under it already."""
        if sealed.key_version == self._ring.newest:
            return sealed
        wrapped = self._wrap(self._unwrap(sealed), sealed.kind, sealed.team, sealed.name, sealed.version)
        return msgspec.structs.replace(sealed, key_version=self._ring.newest, wrapped_key=wrapped)

    def __repr__(self) -> str:
        return f"Vault({self._ring!r})"

    def _wrap(self, data_key: bytes, kind: SealedKind, team: str, name: str, version: int) -> bytes:
        master = self._ring.key(self._ring.newest)
        assert master is not None  # noqa: S101 - the ring's newest version is one of its own
        nonce = os.urandom(_NONCE_BYTES)
        bound = _bound(kind, "key", team, name, version, self._ring.newest)
        return nonce + AESGCM(master).encrypt(nonce, data_key, bound)

    def _unwrap(self, sealed: SealedSecret) -> bytes:
        master = self._ring.key(sealed.key_version)
        if master is None:
            have = ", ".join(map(str, self._ring.versions))
            raise _unreadable(sealed, f"its master key has version {sealed.key_version}, and the ring has only {have}")
        nonce, wrapped = sealed.wrapped_key[:_NONCE_BYTES], sealed.wrapped_key[_NONCE_BYTES:]
        try:
            bound = _bound(sealed.kind, "key", sealed.team, sealed.name, sealed.version, sealed.key_version)
            return AESGCM(master).decrypt(nonce, wrapped, bound)
        except (InvalidTag, ValueError):
            reason = "its data key was changed, belongs to another secret, or was wrapped by another master key"
            raise _unreadable(sealed, reason) from None


def _bound(kind: SealedKind, layer: str, team: str, name: str, *numbers: int) -> bytes:
    """Return the identity as bytes. Each text has its length in front, so that different identities stay different."""
    parts = [f"noonbell {kind} 1 {layer}", team, name, *map(str, numbers)]
    return b"".join(struct.pack(">I", len(data)) + data for data in (part.encode() for part in parts))


def _padded(value: bytes) -> bytes:
    """Return a mark and zeros up to the next step, so that the record does not reveal the length."""
    return value + b"\x80" + bytes(-(len(value) + 1) % _PADDED_TO)


def _unpadded(padded: bytes) -> bytes:
    value, mark, zeros = padded.rpartition(b"\x80")
    if not mark or zeros.strip(b"\0"):
        raise ValueError("no end mark")
    return value


def _unreadable(sealed: SealedSecret, reason: str) -> SecretUnreadableError:
    return SecretUnreadableError(sealed.team, sealed.name, reason)
