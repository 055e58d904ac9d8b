"""Bodies are unpacked, and never further than what is kept."""

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.actions.egress.decoding import BadPackingError, Body
from tests.effort import examples


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "X-GZIP": gzip.compress,
    "deflate": zlib.compress,
}


def fed(body: Body, data: bytes, step: int) -> bytes:
    for start in range(0, len(data), step):
        if not body.add(data[start : start + step]):
            break
    return body.finish()


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=3000), st.sampled_from(sorted(PACKERS)), st.integers(1, 4000), st.integers(0, 3100))
def test_what_is_kept_is_the_beginning_and_cut_tells_the_truth(data: bytes, coding: str, step: int, limit: int) -> None:
    body = Body(coding, limit)
    packed = PACKERS[coding](data)
    kept = fed(body, packed, step)
    assert kept == data[: len(kept)]
    assert body.cut or kept == data
    assert len(kept) <= limit
    if len(packed) <= limit:  # else the packed bytes may have been the limit
        assert body.cut == (len(data) > limit)


def test_deflate_without_its_header_is_unpacked_too() -> None:
    body = Body("deflate", 10_000)
    assert fed(body, bare_deflate(b"noon" * 100), 7) == b"noon" * 100


def test_gzip_in_several_members_is_one_body() -> None:
    body = Body("gzip", 100)
    assert fed(body, gzip.compress(b"noon") + gzip.compress(b"bell"), 5) == b"noonbell"


@cache
def packed_bomb(coding: str) -> bytes:
    return PACKERS[coding](bytes(50_000_000))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_is_unpacked_up_to_the_limit_only(coding: str) -> None:
    bomb = packed_bomb(coding)
    body = Body(coding, 100_000)
    taken = 0
    for start in range(0, len(bomb), 100):
        taken += 100
        if not body.add(bomb[start : start + 100]):
            break
    assert body.finish() == bytes(100_000)
    assert body.cut
    assert taken < len(bomb) / 100


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_in_one_piece_takes_no_more_memory_than_is_kept(coding: str) -> None:
    bomb = packed_bomb(coding)
    body = Body(coding, 100_000)
    tracemalloc.start()
    try:
        assert body.add(bomb) is False
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_packed_bytes_that_unpack_to_nothing_are_bounded() -> None:
    packer = zlib.compressobj(wbits=31)
    body = Body("gzip", 1000)
    piece = packer.compress(b"")
    given = 0
    while given < 1000:
        given += 1
        piece += packer.flush(zlib.Z_FULL_FLUSH) or b"\x00\x00\x00\xff\xff"
        if not body.add(piece):
            break
        piece = b""
    assert body.cut
    assert given < 300


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "compress", "no-such-thing"])
def test_other_packings_are_left_as_they_came(coding: str) -> None:
    body = Body(coding, 5)
    assert fed(body, b"\x1f\x8b\x08 whatever", 3) == b"\x1f\x8b\x08 w"
    assert (body.cut, body.packed) == (True, coding)


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", b"no gzip at all"),
        ("gzip", gzip.compress(b"noonbell")[:-3]),
        ("gzip", gzip.compress(b"noonbell") + b"trailing rubbish"),
        ("gzip", gzip.compress(b"") * 40),
        ("deflate", b"\xff\xff\xff\xff"),
        ("deflate", zlib.compress(b"noonbell") + b"more"),
        ("deflate", zlib.compress(random.Random(4).randbytes(500))[:-20]),
    ],
    ids=range(7),
)
def test_what_is_packed_wrongly_is_an_error(coding: str, data: bytes) -> None:
    body = Body(coding, 1000)
    with pytest.raises(BadPackingError):
        fed(body, data, 11)


def test_an_empty_body_is_no_error_whatever_it_is_said_to_be() -> None:
    assert Body("gzip", 10).finish() == b""
