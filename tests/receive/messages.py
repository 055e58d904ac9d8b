"""Signed messages for the tests, made by the library that the specification's authors publish."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

from standardwebhooks import Webhook

NOW = 1_790_000_000.0
KEY = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER_KEY = "whsec_" + base64.b64encode(b"o" * 32).decode()


def signed(
    body: str = '{"n": 1}', *, message_id: str = "job:scheduled:1", at: float = NOW, key: str = KEY
) -> dict[str, str]:
    """The headers of a message."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at)),
        "webhook-signature": Webhook(key).sign(message_id, datetime.fromtimestamp(at, UTC), body),
    }
