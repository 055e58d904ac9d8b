"""The rule that says what of an HTTP request is a credential: by the name of a header or parameter, or by its place.

Schedules, audit events, plans and the records of attempts all follow it. Credentials are

- the value of a header or query parameter whose name has a word such as `token`, `secret`, `auth`, `cookie`,
  `password`, `signature` or `credential`, or ends in `key`: `X-Auth-Token`, `apiKey`, `X-Amz-Signature`;
- the password of a URL, or its user if it has no password: `https://TOKEN@example.org/`.

A name that the rule does not know well is rather hidden than shown; the exceptions are names that are in common use and
hold no credential, such as `Idempotency-Key`. Bodies are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote, unquote_plus

HIDDEN: Final = "***"

# `XSRFToken` has the words xsrf and token, `X-Amz-Signature` x, amz and signature.
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", re.ASCII)
_WORDS: Final = frozenset("auth authentication bearer creds csrf hmac jwt otp pass pat psw pw pwd sig xsrf".split())
# Anywhere in the name, without the separators of its words.
_PIECE: Final = re.compile(
    r"secret(?!ar)|cookie|passw|passphrase|passcode|credential|signature|authorization|sess(?:ion)?id"
    r"|(?:access|auth|bearer|refresh|session)tokens"
    r"|(?:access|account|admin|api|app|auth|client|functions?|license|master|private|shared|subscription)key(?!word|board)"
)
_COUNTS: Final = ("tokens", "tokeni")  # `max_tokens`, `tokenizer`
_KEYS_OF_NO_LOCK: Final = frozenset(
    "cache dedup deduplication event foreign group hash idempotency index item message object order ordering partition "
    "primary public range record routing row shard socket sort surrogate websocket".split()
)
# Access-Control-Allow-Credentials, and the challenges of WWW-Authenticate, which have no word of the above.
_HARMLESS: Final = re.compile(r"access-control-.*", re.IGNORECASE)
# Not headers: Azure Functions take their key as `code`; several services sign with `sign`.
_PARAMETERS: Final = frozenset({"code", "sign"})

_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)", re.ASCII)
_PARAMETER: Final = re.compile(r"[?&;#]([^?&;#=]*)=")
_END_OF_VALUE: Final = re.compile(r"[&#]|\Z")
# What services that take a token as the user have people write as the password.
_NO_PASSWORDS: Final = frozenset({"", "x", "x-oauth-basic", "api_token"})
_SCHEME_SHOWN: Final = frozenset({"basic", "bearer"})


@lru_cache(maxsize=4_096)
def is_credential_header(name: str) -> bool:
    """Return whether the value of a header with this name is a credential."""
    words = [word.lower() for word in _WORD.findall(name.replace("OAuth", "Oauth"))]
    if not words or _HARMLESS.fullmatch(name):
        return False
    if not _WORDS.isdisjoint(words) or _PIECE.search("".join(words)):
        return True
    if any("token" in word and not word.startswith(_COUNTS) for word in words):
        return True
    return words[-1] == "key" and _KEYS_OF_NO_LOCK.isdisjoint(words)


def is_credential_parameter(name: str) -> bool:
    """Return whether the value of a query parameter with this name is a credential."""
    return name.lower() in _PARAMETERS or is_credential_header(name)


def user_is_credential(password: object) -> bool:
    """Return whether the user with this password is the credential: a token, with no or only a dummy password."""
    return password is None or (isinstance(password, str) and password.lower() in _NO_PASSWORDS)


class InUrl(NamedTuple):
    """The place of a credential in a URL. `part` is user, password, or the name of a parameter."""

    part: str
    begin: int
    end: int
    is_parameter: bool = False


def credentials_in_url(url: str) -> Iterator[InUrl]:
    """The places of credentials in a URL, from left to right. References to secrets there are found as well."""
    at = 0
    if authority := _AUTHORITY.match(url):
        at = authority.end()
        yield from _in_user_info(authority)
    while found := _PARAMETER.search(url, at):
        at = found.end()
        name = unquote_plus(found[1])
        if is_credential_parameter(name):
            end = _END_OF_VALUE.search(url, at)
            begin, at = at, len(url) if end is None else end.start()
            yield InUrl(name, begin, at, is_parameter=True)


def _in_user_info(authority: re.Match[str]) -> Iterator[InUrl]:
    info, at, _ = authority[1].rpartition("@")
    if not at:
        return
    begin = authority.start(1)
    user, _, password = info.partition(":")
    if user_is_credential(unquote(password)):
        yield InUrl("user", begin, begin + len(user))
    else:
        yield InUrl("password", begin + len(user) + 1, begin + len(info))


def hidden_url(url: str) -> str:
    """The URL with all credentials hidden, whether they were references to secrets or not."""
    out: list[str] = []
    done = 0
    for one in credentials_in_url(url):
        if one.begin < one.end:
            out += (url[done : one.begin], HIDDEN)
            done = one.end
    return "".join([*out, url[done:]])


def hidden_header(name: str, value: str) -> str:
    """The value of a header, hidden if it is a credential. `Basic` and `Bearer` are left in front of it."""
    if not is_credential_header(name):
        return value
    scheme, space, _ = value.partition(" ")
    return f"{scheme} {HIDDEN}" if space and scheme.lower() in _SCHEME_SHOWN else HIDDEN
