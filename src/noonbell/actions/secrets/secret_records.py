"""A secret as it is stored, and the verbs that its store offers.

Two kinds of things are sealed: secrets, which people put in by name, and the signing keys of a schedule, by its id.

A record says nothing about its value: no hash or other fingerprint (which would confirm a guess), and its length only
in steps of 64 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, Protocol

import msgspec

from noonbell.core import records
from noonbell.errors import SecretInvalidError

# Shorter values would be found by chance in ordinary text, and guessed by trying; longer ones are files.
SHORTEST_VALUE: Final = 6
LONGEST_VALUE: Final = 16_384
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
DEFAULT_TEAM: Final = records.DEFAULT_TEAM

SealedKind = Literal["secret", "signing_key"]
SEALED_KINDS: Final[tuple[SealedKind, ...]] = ("secret", "signing_key")


class SealedSecret(msgspec.Struct, frozen=True, gc=False):
    """One version of one secret. Kind, team, name and version are its identity, to which both ciphertexts are bound."""

    team: str
    name: str
    version: int  # 1, 2, 3…: raised when the value is replaced
    key_version: int  # of the master key that wraps the data key
    wrapped_key: bytes  # nonce and ciphertext of the data key
    nonce: bytes
    body: bytes  # the value under the data key
    created_at: int  # of the first version; microseconds since 1970 (UTC)
    updated_at: int  # of this version
    kind: SealedKind = "secret"


class SecretFacts(msgspec.Struct, frozen=True, gc=False):
    """The facts of a secret that may be shown."""

    team: str
    name: str
    version: int
    key_version: int
    created_at: int
    updated_at: int


class SecretStore(Protocol):
    """A store of sealed secrets. It never sees a value."""

    async def put_secret(self, sealed: SealedSecret) -> bool:
        """Write a version of a secret: the first, or the one after the stored one. False: another writer was first."""

    async def get_secrets(self, team: str, names: Sequence[str]) -> list[SealedSecret]:
        """Return those of the names that exist, each in its latest version."""

    async def list_secrets(self, team: str) -> list[SealedSecret]:
        """Return the latest version of every secret of a team, by name."""

    async def drop_secret(self, team: str, name: str) -> bool:
        """Remove a secret. False: there is none."""

    async def secrets_under_other_keys(
        self, key_version: int, limit: int, after: tuple[str, str] | None = None
    ) -> list[SealedSecret]:
        """Return secrets whose data key is wrapped by another master key, in the order of (team, name), after one."""

    async def rewrap_secrets(self, pairs: Sequence[tuple[SealedSecret, SealedSecret]]) -> int:
        """Put the new wrapping in place of the old where the stored wrapping is still the old one; say how many."""


def check_identity(team: str, name: str, version: int, kind: SealedKind = "secret") -> None:
    if not team or not team.isprintable():
        raise SecretInvalidError("team", "must be a text of printable characters that is not empty")
    # the signing keys of a schedule go by its id, which the schedule has checked
    if kind == "secret" and not NAME.fullmatch(name):
        shown = name if len(name) <= 64 else name[:64] + "…"
        raise SecretInvalidError(
            "name", f'"{shown}" must be 1 to 64 letters (A to Z, a to z), digits and "_", and not begin with a digit'
        )
    if version < 1:
        raise SecretInvalidError("version", f"{version} must be at least 1")


def check_value(value: str) -> None:
    """Refuse a value that could be stored but not kept secret."""
    if len(value) < SHORTEST_VALUE:
        raise SecretInvalidError(
            "value",
            f"must have at least {SHORTEST_VALUE} characters: a shorter one cannot be masked, since it also turns up "
            "in ordinary text",
        )
    if len(set(value)) < 3:
        raise SecretInvalidError("value", "must have at least 3 different characters: it is a pattern, not a secret")
    # not by trying to encode it: the error of the codec would hold the value
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise SecretInvalidError("value", "must be text that UTF-8 can hold, without lone surrogates")
    if len(value.encode()) > LONGEST_VALUE:
        raise SecretInvalidError("value", f"must have at most {LONGEST_VALUE} bytes in UTF-8")
