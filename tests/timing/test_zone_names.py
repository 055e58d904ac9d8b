"""Zones that were likely meant, at a price that does not depend on how many there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from noonbell.timing import zone_names
from noonbell.timing.zone_names import near_zones


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("Europe/Kiyv", "Europe/Kyiv"),
        ("kyiw", "Europe/Kyiv"),
        ("new york", "America/New_York"),
        ("Amerika/Los_Angeles", "America/Los_Angeles"),
        ("Europe/Berlni", "Europe/Berlin"),
    ],
)
def test_a_slip_of_the_pen(typed: str, meant: str) -> None:
    assert near_zones(typed)[0] == meant


@pytest.mark.parametrize("typed", ["", "x", "qqqqqq", "Europe/" + "Kyiv" * 50_000])
def test_nothing_is_near(typed: str) -> None:
    assert near_zones(typed) == []


def test_few_names_are_compared_and_the_host_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    asked: list[None] = []

    def comparing(word: str, names: Iterable[str], **how: Any) -> list[str]:
        compared.append(len(list(names)))
        return []

    def available() -> set[str]:
        asked.append(None)
        return {f"Area/City{number}" for number in range(5_000)}

    monkeypatch.setattr(zone_names, "get_close_matches", comparing)
    monkeypatch.setattr(zone_names, "available_timezones", available)
    zone_names._known.cache_clear()
    try:
        for number in range(20):
            near_zones(f"Area/Citx{number}")
    finally:
        zone_names._known.cache_clear()
    assert len(asked) == 1
    assert max(compared) <= 40
