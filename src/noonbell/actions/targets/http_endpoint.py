"""An HTTP endpoint as a target.

Its answer to a message that it refuses is shown, cut short, to every user who may see the schedule. Values of
headers and of the address that it repeats are masked there, as far as they are long enough to be secrets.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final
from urllib.parse import unquote, unquote_plus, urlsplit

from noonbell.actions.egress import Egress, HttpClient, Outgoing
from noonbell.actions.secrets.masking import Masker
from noonbell.actions.secrets.secret_records import check_value
from noonbell.actions.targets.target import masked, require_address, require_seconds
from noonbell.errors import DeliveryError, NoonbellError, ScheduleInvalidError, SecretInvalidError

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
_LONGEST_EXCERPT: Final = 200
# More than is shown: mask first, then cut.
_LONGEST_READ: Final = 4_096
_BETWEEN: Final = re.compile(r"[\s,;=\"]+")


class HttpEndpoint:
    """An endpoint that takes CloudEvents by POST, in structured mode, and answers 2xx when it has one.

    Every connection goes through `egress`, which refuses what is not public unless its policy allows it. Redirects are
    not followed. Needs the extra noonbell[server].
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        egress: Egress | None = None,
    ) -> None:
        require_address(url, ("http", "https"), "https://example.com/hook")
        require_seconds("timeout", timeout)
        _require_texts(headers)
        self._url = url
        self._headers = tuple((headers or {}).items())
        self._timeout = timeout
        self._egress = Egress() if egress is None else egress
        self._client: HttpClient | None = None

    def __repr__(self) -> str:
        return f"HttpEndpoint({masked(self._url)!r})"

    async def deliver(self, body: str) -> None:
        request = Outgoing(
            "POST",
            self._url,
            headers=(("Content-Type", CONTENT_TYPE), *self._headers),
            body=body.encode(),
            total_seconds=self._timeout,
            connect_seconds=min(self._timeout, 10.0),
            body_limit=_LONGEST_READ,
        )
        if self._client is None:
            try:
                self._client = self._egress.client()
            except ImportError:
                raise DeliveryError(repr(self), "aiohttp is not installed; pip install noonbell[server]") from None
        try:
            answer = await self._client.fetch(request)
        except NoonbellError as error:
            raise DeliveryError(repr(self), str(error)) from error
        if not 200 <= answer.status < 300:
            excerpt = self._masker.data(answer.body, cut=answer.cut)
            said = excerpt.decode("utf-8", "backslashreplace")[:_LONGEST_EXCERPT].strip()
            raise DeliveryError(repr(self), f"it answered {answer.status}{': ' + said if said else ''}")

    @cached_property
    def _masker(self) -> Masker:
        return Masker(_long_enough(_secrets_of(self._url, self._headers)))

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _secrets_of(url: str, headers: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield what may be secret in a request: values of headers, of the query, user and password; whole and in parts."""
    for _, value in headers:
        scheme, _, credentials = value.strip().partition(" ")
        yield from (value, credentials, *_BETWEEN.split(credentials if scheme.isalpha() else value))
        if scheme.lower() == "basic":
            yield from _pair(_unpacked(credentials))
    try:
        parts = urlsplit(url)
    except ValueError:
        return  # nothing is sent there
    yield from (parts.query, unquote_plus(parts.query))
    for piece in parts.query.split("&"):
        name, _, value = piece.partition("=")
        yield from (value or name, unquote_plus(value or name))
    userinfo = parts.netloc.rpartition("@")[0]
    for piece in _pair(userinfo):
        yield from (piece, unquote(piece))


def _pair(userinfo: str) -> tuple[str, str, str]:
    user, _, password = userinfo.partition(":")
    return userinfo, user, password


def _unpacked(credentials: str) -> str:
    try:
        return base64.b64decode(credentials).decode()
    except ValueError:
        return ""


def _long_enough(values: Iterable[str]) -> Iterator[str]:
    """Return the texts that can be masked: shorter ones occur in ordinary text."""
    for value in values:
        try:
            check_value(value)
        except SecretInvalidError:
            continue
        yield value


def _require_texts(headers: object) -> None:
    given = headers.items() if isinstance(headers, Mapping) else [] if headers is None else [(headers, headers)]
    for name, value in given:
        if not isinstance(name, str) or not isinstance(value, str) or not name.isascii():
            raise ScheduleInvalidError("headers", name, "must be a table of texts")
