"""The common parts of sending on all kinds of channels: the way out, and the text of an answer.

Everything goes through egress. An error names the host at most, never a path or a header: the address of a hook is its
password.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from noonbell.actions.egress import Egress, HttpClient, Incoming, Outgoing
from noonbell.actions.secrets.masking import NOTHING, Masker
from noonbell.errors import DeliveryError, NoonbellError
from noonbell.notify.notice_text import RenderedNotice

TIMEOUT_SECONDS: Final = 30.0
_LONGEST_EXCERPT: Final = 300
_encode = msgspec.json.Encoder().encode


class SendContext(NamedTuple):
    """The means of a channel to reach its service."""

    egress: Egress
    http: Callable[[], HttpClient]
    signing_keys: Sequence[str]  # of this channel, where it signs
    now: Callable[[], int]
    channel_id: str
    masker: Masker = NOTHING  # of the channel's team


class Send(Protocol):
    """Sends a rendered notice; returns what the other side said. The config has its secrets filled in."""

    async def __call__(self, context: SendContext, config: Mapping[str, Any], rendered: RenderedNotice) -> str: ...


async def post_json(
    context: SendContext, service: str, url: str, body: object, headers: Mapping[str, str] | None = None
) -> Incoming:
    """Post a JSON body and expect 2xx."""
    return await post(context, service, url, _encode(body), {"Content-Type": "application/json", **(headers or {})})


async def post(context: SendContext, service: str, url: str, body: bytes, headers: Mapping[str, str]) -> Incoming:
    request = Outgoing(
        "POST",
        url,
        headers=tuple(headers.items()),
        body=body,
        total_seconds=TIMEOUT_SECONDS,
        body_limit=_LONGEST_EXCERPT * 4,
    )
    target = f"{service} ({place_of(url)})"
    try:
        answer = await context.http().fetch(request)
    except ImportError:
        raise DeliveryError(target, "aiohttp is not installed; pip install noonbell[server]") from None
    except NoonbellError as error:
        raise DeliveryError(target, str(error)) from error
    # before it is cut anywhere
    answer = replace(answer, body=context.masker.data(answer.body, cut=answer.cut))
    if not 200 <= answer.status < 300:
        raise DeliveryError(target, f"it answered {said(answer)}")
    return answer


def said(answer: Incoming) -> str:
    excerpt = answer.body.decode("utf-8", "replace")[:_LONGEST_EXCERPT].strip()
    plain = "".join(char if char.isprintable() else " " for char in excerpt)
    return f"{answer.status}{': ' + plain if plain else ''}"


def place_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or "?"
    except ValueError:
        return "?"
