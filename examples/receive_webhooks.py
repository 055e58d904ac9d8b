"""The receiving end of signed HTTP jobs: an application that handles each of them once.

Run it, and it sends itself a few messages, good and bad, and shows what becomes of them:

    python examples/receive_webhooks.py

Or let it wait for real ones, with the key of the schedule that sends them and a file that remembers what was handled:

    WEBHOOK_KEY=whsec_… SEEN_FILE=seen.db uvicorn examples.receive_webhooks:app
"""

from __future__ import annotations

import os
import time
from typing import Annotated

from fastapi import Depends, FastAPI

from noonbell.actions.signatures import Signer, new_key
from noonbell.receive import MemorySeen, Received, Receiver, SqliteSeen
from noonbell.receive.fastapi import received

KEY = os.environ.get("WEBHOOK_KEY") or new_key(0).key
SEEN_FILE = os.environ.get("SEEN_FILE")

receiver = Receiver(KEY, store=SqliteSeen(SEEN_FILE) if SEEN_FILE else MemorySeen())
app = FastAPI()
invoices: list[str] = []


@app.post("/invoices")
async def make_invoice(message: Annotated[Received, Depends(received(receiver))]) -> dict[str, int]:
    """Called once for each run, however often it is sent. An error here makes the next attempt count."""
    invoices.append(message.json()["customer"])
    return {"invoices": len(invoices)}


def main() -> None:
    from fastapi.testclient import TestClient  # noqa: PLC0415 - needed only where the example talks to itself

    now = time.time_ns() // 1000
    body = b'{"customer": "Ada"}'

    def headers(*, attempt: int, sent_at: int = now) -> dict[str, str]:
        run_id = "billing:scheduled:1"
        return Signer([KEY]).headers(run_id=run_id, body=body, sent_at=sent_at, scheduled_for=now, attempt=attempt)

    client = TestClient(app)
    for what, sent, signed in [
        ("first attempt", body, headers(attempt=1)),
        ("second attempt of the same run", body, headers(attempt=2)),
        ("changed on the way", b'{"customer": "Eve"}', headers(attempt=1)),
        ("an hour old", body, headers(attempt=1, sent_at=now - 3_600_000_000)),
        ("not signed", body, {}),
    ]:
        answer = client.post("/invoices", content=sent, headers=signed)
        print(f"{what}: {answer.status_code} {answer.text}")
    print("invoices:", ", ".join(invoices))


if __name__ == "__main__":
    main()
