"""The receiving end of signed HTTP jobs without any framework: a plain ASGI application behind a guard.

Run it, and it is called as a server would call it, with good and bad messages:

    python examples/receive_webhooks_asgi.py

Or let a server wait for real ones, with the key of the schedule that sends them and a file that remembers:

    WEBHOOK_KEY=whsec_… SEEN_FILE=seen.db uvicorn examples.receive_webhooks_asgi:app
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from noonbell.actions.signatures import Signer, new_key
from noonbell.receive import MemorySeen, Received, Receiver, SqliteSeen

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

KEY = os.environ.get("WEBHOOK_KEY") or new_key(0).key
SEEN_FILE = os.environ.get("SEEN_FILE")

receiver = Receiver(KEY, store=SqliteSeen(SEEN_FILE) if SEEN_FILE else MemorySeen())
invoices: list[str] = []


async def make_invoice(scope: Message, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
    """Called once for each run. An answer other than 2xx, or an error, makes the next attempt count."""
    del receive  # the guard has read the body: it is in the message
    if scope["type"] != "http":
        return
    message: Received = scope["noonbell.received"]
    invoices.append(message.json()["customer"])
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


app = receiver.guard(make_invoice)


async def post(body: bytes, headers: Mapping[str, str]) -> int:
    """Call the application as a server does; returns the status of its answer."""
    sent: list[Message] = []
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope: Message = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": raw}

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


async def main() -> None:
    now = time.time_ns() // 1000
    body = b'{"customer": "Ada"}'

    def headers(*, attempt: int) -> dict[str, str]:
        run_id = "billing:scheduled:1"
        return Signer([KEY]).headers(run_id=run_id, body=body, sent_at=now, scheduled_for=now, attempt=attempt)

    print("first attempt:", await post(body, headers(attempt=1)))
    print("second attempt of the same run:", await post(body, headers(attempt=2)))
    print("changed on the way:", await post(b'{"customer": "Eve"}', headers(attempt=1)))
    print("not signed:", await post(body, {}))
    print("invoices:", ", ".join(invoices))


if __name__ == "__main__":
    asyncio.run(main())
