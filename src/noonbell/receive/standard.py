"""The signature of Standard Webhooks, for both ends: names of headers, form of keys, what is signed.

Signed is `id.timestamp.body` with HMAC-SHA-256. A header may carry several signatures, separated by spaces, so that a
key can be replaced while both ends still know the old one. An id never holds a full stop: else the same bytes could
be read as another id, another timestamp and another body.

It is made here and not by the package `standardwebhooks`, which takes text only and one key: a body may be any bytes.
The tests hold both against each other.

Headers outside of these three are not signed; a receiver that needs to trust a fact has to read it from the body.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from noonbell.errors import SigningKeyError

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"
IDEMPOTENCY_HEADER: Final = "idempotency-key"
SCHEDULED_HEADER: Final = "noonbell-scheduled-for"
ATTEMPT_HEADER: Final = "noonbell-attempt"

KEY_PREFIX: Final = "whsec_"
# What the specification asks for.
SHORTEST_KEY: Final = 24
LONGEST_KEY: Final = 64
# More than any rotation needs; each costs a comparison.
_MOST_SIGNATURES: Final = 32


def parse_key(text: str) -> bytes:
    """The bytes of a key in the form `whsec_` and base64; the prefix and the padding may be missing."""
    if not isinstance(text, str):
        raise SigningKeyError(f"a text like {KEY_PREFIX}… is needed, not {type(text).__name__}")
    encoded = text.removeprefix(KEY_PREFIX).rstrip("=")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        # the error of the codec may hold a part of the key
        raise SigningKeyError(f"what follows {KEY_PREFIX} is not base64") from None
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        raise SigningKeyError(f"it has {len(key)} bytes; {SHORTEST_KEY} to {LONGEST_KEY} are right")
    return key


def format_key(key: bytes) -> str:
    return KEY_PREFIX + base64.b64encode(key).decode()


def signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    return "v1," + base64.b64encode(_digest(key, message_id, timestamp, body)).decode()


def is_signed(keys: Iterable[bytes], message_id: str, timestamp: int, body: bytes, header: str) -> bool:
    """Return whether any signature of version 1 in the header was made with any of the keys, in constant time."""
    given = [part[3:].encode("utf-8", "replace") for part in header.split(" ")[:_MOST_SIGNATURES] if part[:3] == "v1,"]
    fits = False
    for key in keys:
        right = base64.b64encode(_digest(key, message_id, timestamp, body))
        for candidate in given:
            fits |= hmac.compare_digest(right, candidate)
    return fits


def _digest(key: bytes, message_id: str, timestamp: int, body: bytes) -> bytes:
    code = hmac.new(key, f"{message_id}.{timestamp}.".encode(), hashlib.sha256)
    code.update(body)
    return code.digest()
