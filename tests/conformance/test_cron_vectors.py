"""The conformance vectors of the cron language: every row passes, none is skipped, reason texts included."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from noonbell.cron import parse, parse_field
from tests.conformance import runner

CRON_CALLS = {"parse_cron", "cron_next", "parse_field"}


class CronAdapter(runner.Adapter):
    """Only the cron language; the scheduler's vectors have an adapter of their own."""

    features = frozenset({"sets", "parse_field"})

    def parse_cron(self, expr: Any) -> dict[str, frozenset[int]]:
        found = parse(expr)
        return {
            "minute": found.minutes,
            "hour": found.hours,
            "day": found.days,
            "month": found.months,
            "weekday": found.weekdays,
        }

    def cron_next(self, expr: str, tz: str, when: datetime) -> datetime:
        return parse(expr).next(when.astimezone(ZoneInfo(tz)))

    def cron_prev(self, expr: str, tz: str, when: datetime) -> datetime:
        return parse(expr).previous(when.astimezone(ZoneInfo(tz)))

    def parse_field(self, text: str, field: str) -> frozenset[int]:
        return parse_field(text, field)


def failures(report: Any) -> list[str]:
    return [f"{row['kind']} {row['id']}: {row['why']}" for row in report.rows if row["ok"] is not True]


def test_parse_vectors() -> None:
    report = runner.Report()
    runner.run_parse(CronAdapter(), report, strict=True)
    assert len(report.rows) == len(runner.load("cron_parse.json"))
    assert failures(report) == []


def test_the_or_of_day_and_weekday_is_seen() -> None:
    for row in runner.load("cron_parse.json"):
        if row["valid"]:
            found = parse(row["expr"])
            assert (found.day_restricted and found.weekday_restricted) is row["dom_dow_or"], row["id"]


def test_next_previous_and_sequence_vectors() -> None:
    report = runner.Report()
    runner.run_next_prev(CronAdapter(), report)
    assert len(report.rows) == len(runner.load("cron_next_prev.json")) + len(runner.load("cron_sequences.json"))
    assert failures(report) == []


def test_error_vectors_of_the_language() -> None:
    adapter, seen, wrong = CronAdapter(), 0, []
    for entry in runner.load("errors.json"):
        for case in entry["cases"]:
            if case["trigger"]["call"] not in CRON_CALLS:
                continue
            seen += 1
            try:
                runner.trigger(adapter, case["trigger"])
                raised: Exception | None = None
            except Exception as error:  # noqa: BLE001 - the vector says which error is right
                raised = error
            why = runner.match_error(raised, runner.fill(adapter, case["expect"]))
            if why:
                wrong.append(f"{entry['class']} {case['trigger']}: {why}")
    assert seen > 10
    assert wrong == []
