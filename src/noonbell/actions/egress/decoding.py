"""Unpacking bodies within a bound.

gzip and deflate are unpacked piece by piece, never further than the bytes that will be kept. Other ways of packing, and
several on top of each other, are left as they came: the standard library cannot unpack them with a bound on the
output, and a body that is only kept for people to read does not justify that risk.
"""

from __future__ import annotations

import zlib
from typing import Final

# Real bodies have one member. Each further one copies what is left of the piece, so their number is bounded as well.
_MOST_MEMBERS: Final = 16
_PLAIN: Final = frozenset({"", "identity"})


class BadPackingError(ValueError):
    """The body is not packed in the way that its headers say."""


class Body:
    """Takes a body in pieces as they come, unpacks them, and keeps at most `limit` bytes.

    `add` returns whether more is wanted. What came in packed is bounded by the same limit: a stream that unpacks to
    nothing could go on for ever.
    """

    def __init__(self, content_encoding: str, limit: int) -> None:
        coding = content_encoding.strip().lower()
        self._gzip = coding in {"gzip", "x-gzip"}
        self._unpacker: zlib._Decompress | None = None
        if self._gzip:
            self._unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
        elif coding == "deflate":
            self._unpacker = zlib.decompressobj(zlib.MAX_WBITS)
        self.packed = "" if self._unpacker is not None or coding in _PLAIN else coding[:100]
        self._limit = limit
        self._kept = bytearray()
        self._came = 0
        self._members = 1
        self.cut = False

    def add(self, piece: bytes) -> bool:
        first = self._came == 0
        self._came += len(piece)
        if self._unpacker is None:
            self._keep(piece)
        else:
            if first and piece and not self._gzip and piece[0] & 0x0F != 8:
                # deflate is said to carry a zlib header; some servers send it bare
                self._unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
            self._unpack(piece)
            self.cut = self.cut or self._came > self._limit
        return not self.cut

    def finish(self) -> bytes:
        """Return the body that was kept. After it, the object is used up.

        Raises:
            BadPackingError: the packed body ended too early.
        """
        if self._unpacker is not None and self._came and not self.cut and not self._unpacker.eof:
            raise BadPackingError("the packed body is cut short")
        kept = bytes(self._kept)
        self._kept.clear()
        return kept

    def _unpack(self, piece: bytes) -> None:
        unpacker = self._unpacker
        while piece and unpacker is not None and not self.cut:
            if unpacker.eof:
                unpacker = self._unpacker = self._next_member()
            try:
                # one byte more than fits, so that a body of exactly the limit is not taken for a longer one
                self._keep(unpacker.decompress(piece, self._limit - len(self._kept) + 1))
            except zlib.error:
                raise BadPackingError("the body is not packed as its headers say") from None
            piece = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail

    def _next_member(self) -> zlib._Decompress:
        self._members += 1
        if not self._gzip or self._members > _MOST_MEMBERS:
            raise BadPackingError("something follows the packed body")
        return zlib.decompressobj(16 + zlib.MAX_WBITS)

    def _keep(self, piece: bytes) -> None:
        room = self._limit - len(self._kept)
        if len(piece) > room:
            self.cut = True
            piece = piece[:room]
        self._kept += piece
