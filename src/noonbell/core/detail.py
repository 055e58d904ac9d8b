"""What an attempt has to tell, as it is kept: a program's output, a request and its answer.

A detail is a JSON object in a few bytes. The first byte says how the rest is to be read: `J` is JSON as it is, `Z` is
JSON behind zlib. It is compressed only where that is worth it, and quickly rather than well: it happens on the way of
every request, and most of the gain is in the first level.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import msgspec

_PLAIN: Final = b"J"
_DEFLATED: Final = b"Z"

# Below this the header of zlib and its tables eat what it gains.
_LEAST: Final = 200
_LEVEL: Final = 1

_encode = msgspec.json.Encoder().encode


def pack(detail: dict[str, Any]) -> bytes:
    """A detail as it is stored."""
    text = _encode(detail)
    if len(text) >= _LEAST:
        deflated = zlib.compress(text, _LEVEL)
        if len(deflated) < len(text):
            return _DEFLATED + deflated
    return _PLAIN + text


def unpack(packed: bytes) -> dict[str, Any]:
    """The detail that was packed.

    Raises:
        ValueError: these bytes are not a packed detail.
    """
    first, rest = packed[:1], packed[1:]
    try:
        if first == _DEFLATED:
            rest = zlib.decompress(rest)
        elif first != _PLAIN:
            raise ValueError(f"A packed detail begins with J or Z, not with {first!r}")
        return msgspec.json.decode(rest, type=dict[str, Any])
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"The packed detail is damaged: {error}") from None
