"""Small checks that the kinds of channels share. A complaint about a secret does not repeat it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from noonbell.actions.egress.hosts import read_url
from noonbell.errors import ChannelInvalidError, EgressRefusedError

LONGEST_TEXT: Final = 500
LONGEST_URL: Final = 2_000

_ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*", re.ASCII)


def known_only(config: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse keys that a kind of channel does not have."""
    names = tuple(known)
    for key in config:
        if key not in names:
            near = get_close_matches(str(key), names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
            # its value may be a secret under a misspelt name
            raise ChannelInvalidError(f"config.{key!s:.100}", None, f"is not known; {hint}")


def text(field: str, value: object, right: str, *, longest: int = LONGEST_TEXT, secret: bool = False) -> str:
    """A text of one line that is not blank."""
    if not isinstance(value, str) or not value.strip() or len(value) > longest or not value.isprintable():
        given = "is missing; it " if value is None else ""
        raise ChannelInvalidError(
            field, None if secret else value, f"{given}must be {right}, 1 to {longest} characters"
        )
    return value


def url(field: str, value: object, right: str, *, secret: bool = False) -> str:
    """An address that begins with http:// or https://, or a reference to a secret that does."""
    found = text(field, value, right, longest=LONGEST_URL, secret=secret)
    if found.startswith("${"):
        return found
    shown = None if secret else found
    try:
        target = read_url(found)  # as an HTTP job reads it
    except EgressRefusedError as error:
        raise ChannelInvalidError(field, shown, f"must be {right}: {error.reason}") from None
    if target.userinfo is not None:
        raise ChannelInvalidError(field, None, "must not hold a user or a password; put them into headers")
    return found


def whole(field: str, value: object, lowest: int, highest: int) -> int:
    if type(value) is not int or not lowest <= value <= highest:
        raise ChannelInvalidError(field, value, f"must be a whole number from {lowest} to {highest}")
    return value


def flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ChannelInvalidError(field, value, "must be true or false")
    return value


def address(field: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > 254 or not _ADDRESS.fullmatch(value):
        raise ChannelInvalidError(field, value, "must be an e-mail address such as ann@example.com")
    return value
