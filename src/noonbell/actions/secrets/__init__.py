"""Secrets: sealed at rest, named in requests as `${secrets.NAME}`, masked in everything that is written down.

    secrets     `Secrets`: what the rest of the program uses
    keys        master keys, in versions, from a file or a variable
    records     a sealed secret, and what the store has to do with it
    stored      sealed secrets as documents of a store
    book        putting, removing, using and rotating the secrets of a store
    known       the values that a process knows, and the maskers made of them
    signing     the signing keys of schedules
    vault       sealing, opening, rewrapping: needs the package `cryptography`
    references  `${secrets.NAME}` in URL, headers and body
    masking     takes the values out of text, bytes, structures, errors and log lines
    forms       the ways in which a value may be written
    finding     looks for those of many values in one pass
    logs        masking for the standard library's logging

The names below are fetched when they are used, so that reading a reference does not load the cipher.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from noonbell.actions.secrets.keys import KeyRing, find_keys, read_keys
    from noonbell.actions.secrets.masking import Masker
    from noonbell.actions.secrets.secret_records import DEFAULT_TEAM, SecretFacts
    from noonbell.actions.secrets.secrets import Secrets

__all__ = ["DEFAULT_TEAM", "KeyRing", "Masker", "SecretFacts", "Secrets", "find_keys", "read_keys"]

_HOMES: Final = {
    "DEFAULT_TEAM": "secret_records",
    "KeyRing": "keys",
    "Masker": "masking",
    "SecretFacts": "secret_records",
    "Secrets": "secrets",
    "find_keys": "keys",
    "read_keys": "keys",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
