"""An HTTP endpoint as a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noonbell.actions.egress import Egress, HttpClient, Outgoing
from noonbell.actions.targets.protocol import masked, require_address, require_seconds
from noonbell.errors import DeliveryError, NoonbellError, ScheduleInvalidError

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
_LONGEST_EXCERPT: Final = 200


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
            body_limit=_LONGEST_EXCERPT,
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
            said = answer.body.decode("utf-8", "backslashreplace")[:_LONGEST_EXCERPT].strip()
            raise DeliveryError(repr(self), f"it answered {answer.status}{': ' + said if said else ''}")

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _require_texts(headers: object) -> None:
    given = headers.items() if isinstance(headers, Mapping) else [] if headers is None else [(headers, headers)]
    for name, value in given:
        if not isinstance(name, str) or not isinstance(value, str) or not name.isascii():
            raise ScheduleInvalidError("headers", name, "must be a table of texts")
