"""The generic webhook: a CloudEvent by POST, signed as Standard Webhooks asks (see `actions.signatures`).

The signing keys belong to the channel and are sealed like those of a schedule; `Channels.signing_keys` shows them to
the person who sets up the receiver. Values of headers are secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from noonbell.actions.signatures import wire_id
from noonbell.errors import ChannelInvalidError
from noonbell.notify import checks
from noonbell.notify.notice_text import RenderedNotice, written
from noonbell.notify.sending import SendContext, post, said
from noonbell.receive.standard import (
    ID_HEADER,
    IDEMPOTENCY_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    parse_key,
    signature,
)

_MOST_HEADERS: Final = 20
_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,100}", re.ASCII)
_OURS: Final = frozenset({"content-type", ID_HEADER, IDEMPOTENCY_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER})
_encode = msgspec.json.Encoder().encode


def check_webhook(config: Mapping[str, Any]) -> dict[str, Any]:
    checks.known_only(config, ("url", "headers", "sign"))
    checked: dict[str, Any] = {
        "url": checks.url("config.url", config.get("url"), "an address such as https://example.com/hook"),
        "sign": checks.flag("config.sign", config.get("sign", True)),
    }
    headers = config.get("headers") or {}
    if not isinstance(headers, Mapping) or len(headers) > _MOST_HEADERS:
        raise ChannelInvalidError("config.headers", None, f"must be an object with up to {_MOST_HEADERS} headers")
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ChannelInvalidError("config.headers", name, "is not a header name: letters, digits and hyphens")
        if name.lower() in _OURS:
            raise ChannelInvalidError(f"config.headers.{name}", None, "is set by Noonbell itself; leave it out")
        checks.text(f"config.headers.{name}", value, "a text of one line", longest=2_000, secret=True)
    if headers:
        checked["headers"] = dict(headers)
    return checked


def webhook_body(channel_id: str, rendered: RenderedNotice) -> bytes:
    event = {
        "specversion": "1.0",
        "id": rendered.id,
        "source": f"/noonbell/channels/{quote(channel_id, safe='')}",
        "type": f"noonbell.{rendered.event}",
        "time": written(rendered.at),
        "datacontenttype": "application/json",
        "data": {**rendered.data, "title": rendered.title, "text": rendered.text, "link": rendered.link},
    }
    return _encode(event)


async def send_webhook(context: SendContext, config: Mapping[str, Any], rendered: RenderedNotice) -> str:
    body = webhook_body(context.channel_id, rendered)
    message_id = wire_id(rendered.id)
    headers = {
        "Content-Type": "application/cloudevents+json; charset=utf-8",
        **config.get("headers", {}),
        ID_HEADER: message_id,
        IDEMPOTENCY_HEADER: message_id,
    }
    if config["sign"]:
        timestamp = context.now() // 1_000_000
        keys = [parse_key(key) for key in context.signing_keys]
        headers[TIMESTAMP_HEADER] = str(timestamp)
        headers[SIGNATURE_HEADER] = " ".join(signature(key, message_id, timestamp, body) for key in keys)
    return said(await post(context, "The webhook", config["url"], body, headers))
