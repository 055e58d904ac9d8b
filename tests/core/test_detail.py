"""Details as they are kept."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.core.detail import pack, unpack

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text("abc"), VALUES))
def test_what_was_packed_comes_back(detail: dict[str, Any]) -> None:
    assert unpack(pack(detail)) == detail


def test_a_small_one_is_readable_as_it_is() -> None:
    assert pack({"exit_code": 0}) == b'J{"exit_code":0}'


def test_a_long_one_takes_less_room() -> None:
    detail = {"body": "all work and no play " * 1000}
    packed = pack(detail)
    assert len(packed) < len(json.dumps(detail)) / 20
    assert unpack(packed) == detail


def test_what_would_not_shrink_is_kept_as_it_is() -> None:
    detail = {"body": "".join(chr(0x4E00 + byte) for byte in os.urandom(40)) + os.urandom(70).hex()}
    packed = pack(detail)
    assert len(packed) <= len(json.dumps(detail, ensure_ascii=False).encode()) + 1
    assert unpack(packed) == detail


@pytest.mark.parametrize("damaged", [b"", b"{}", b"J", b"J[]", b"J{", b"Z", b"Zno", pack({"a": "b" * 500})[:-3]])
def test_damage_is_told(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="packed detail"):
        unpack(damaged)
