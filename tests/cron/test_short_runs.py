"""The long runs on a small scale, and proof that they can fail."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell.cron import CronExpression
from tests.faults import cron_fuzz, cron_zones


def test_some_zones() -> None:
    tally, transitions = cron_zones.run(["Pacific/Apia", "Asia/Gaza"], workers=1, first_year=2009, last_year=2012)
    assert tally.mismatches == []
    assert transitions > 10
    assert tally.comparisons > 1000 * transitions


def test_the_run_over_zones_sees_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CronExpression.next_epoch

    def wrong(self: CronExpression, after: int, *rest: Any) -> int:
        found = right(self, after, *rest)
        return found + 60 if self.text == "0 0 * * *" else found

    monkeypatch.setattr(CronExpression, "next_epoch", wrong)
    tally, _ = cron_zones.run(["Europe/Kyiv"], workers=1, first_year=2024, last_year=2024)
    assert tally.mismatches
    assert all(" 0 0 * * * " in mismatch for mismatch in tally.mismatches)


def test_some_thousand_texts() -> None:
    findings = cron_fuzz.run(6_000, seed=1)
    assert findings.faults == []
    assert findings.valid > 500
    assert findings.translated > findings.valid


def test_the_fuzz_sees_an_undeclared_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> CronExpression:
        raise RuntimeError(text)

    monkeypatch.setattr(cron_fuzz, "parse", broken)
    assert cron_fuzz.run(10, seed=1).faults
