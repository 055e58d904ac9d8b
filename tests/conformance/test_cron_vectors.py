"""The conformance vectors of the cron language: every row passes, none is skipped, reason texts included."""

from __future__ import annotations

from typing import Any

import runner
from adapter import Adapter

from noonbell.cron import parse


def failures(report: Any) -> list[str]:
    return [f"{row['kind']} {row['id']}: {row['why']}" for row in report.rows if row["ok"] is not True]


def test_parse_vectors() -> None:
    report = runner.Report()
    runner.run_parse(Adapter(), report, strict=True)
    assert len(report.rows) == len(runner.load("cron_parse.json"))
    assert failures(report) == []


def test_the_or_of_day_and_weekday_is_seen() -> None:
    for row in runner.load("cron_parse.json"):
        if row["valid"]:
            found = parse(row["expr"])
            assert (found.day_restricted and found.weekday_restricted) is row["dom_dow_or"], row["id"]


def test_next_previous_and_sequence_vectors() -> None:
    report = runner.Report()
    runner.run_next_prev(Adapter(), report)
    assert len(report.rows) == len(runner.load("cron_next_prev.json")) + len(runner.load("cron_sequences.json"))
    assert failures(report) == []
