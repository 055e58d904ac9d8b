"""Run ids: what is written is read back, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.core.ids import KINDS, RunId, parse_run_id, run_id, schedule_of
from noonbell.core.records import Kind

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
IDS = st.text() | st.from_regex(r"[a:]*(:(scheduled|manual):-?[0-9]{1,3})*", fullmatch=True)


@given(IDS, st.sampled_from(("scheduled", "manual")), NUMBERS)
def test_a_written_id_is_read_back(schedule_id: str, kind: Kind, run_for: int) -> None:
    written = run_id(schedule_id, kind, run_for)
    assert parse_run_id(written) == RunId(schedule_id, kind, run_for)
    assert schedule_of(written) == schedule_id


@given(st.text() | IDS)
def test_what_is_read_is_written_the_same(text: str) -> None:
    found = parse_run_id(text)
    assert found is None or run_id(*found) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "a:b", "a:5", "scheduled:5", "a:scheduled:", "a:scheduled:x", "a:other:5", "a:scheduled:05",
        "a:scheduled:+5", "a:scheduled: 5", "a:scheduled:5 ", "a:scheduled:1_0", "a:scheduled:-0", "a:scheduled:٥",
        f"a:manual:{1 << 63}", "a:manual:" + "9" * 5_000, "a.5",
    ],
)  # fmt: skip
def test_what_is_no_id_is_none(text: str) -> None:
    assert parse_run_id(text) is None


def test_the_kinds_are_those_of_runs() -> None:
    assert KINDS == ("scheduled", "manual")
