"""Details as they are kept."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.core.attempt_detail import LONGEST_TRACEBACK, has_traceback, pack, traceback_text, unpack, with_traceback
from noonbell.errors import CommandFailedError, NoonbellError

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


# --- tracebacks -------------------------------------------------------------------------------------------------------


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - any error, with its traceback
        return caught


def test_a_long_traceback_keeps_its_head_and_its_tail() -> None:
    text = traceback_text(raised(ValueError("begin" + 100_000 * "x" + "end")))
    assert len(text) <= LONGEST_TRACEBACK
    assert text.startswith("Traceback (most recent call last):")
    assert "ValueError: beginxxx" in text
    assert "characters left out" in text
    assert text.endswith("xxxend")


def test_a_traceback_is_masked_before_it_is_cut() -> None:
    """Half a secret at the edge of the cut would not be found."""
    text = traceback_text(raised(ValueError(5_000 * "secret")), lambda text: text.replace("secret", "*"))
    assert "secret" not in text
    assert "se\n" not in text
    assert "ValueError: ****" in text


def test_an_error_that_cannot_be_rendered_has_a_traceback_all_the_same() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert "BrokenError" in traceback_text(raised(BrokenError()))
    assert "\\udc80" in traceback_text(raised(ValueError("\udc80"))), "half a surrogate pair cannot be stored"


def test_a_traceback_joins_what_an_action_has_packed() -> None:
    assert unpack(with_traceback(None, "t")) == {"traceback": "t"}
    assert unpack(with_traceback(pack({"exit_code": 1}), "t")) == {"exit_code": 1, "traceback": "t"}


def test_failures_of_actions_have_no_traceback() -> None:
    assert has_traceback(ValueError("anybody's"))
    assert not has_traceback(raised(CommandFailedError("ls", "ended with 1", b"")))
    assert not has_traceback(NoonbellError("raised by this package alone"))
    assert has_traceback(raised(NoonbellError("raised by a program that uses this package")))
