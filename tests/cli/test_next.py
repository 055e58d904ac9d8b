"""`noonbell next`: what it lists, how it reads its options, and what it says about bad ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner, Result

from noonbell.cli import program

NOW = datetime(2026, 10, 31, 20, 0, 30, tzinfo=UTC)  # 16:00:30 in New York


def run(*arguments: str, now: datetime = NOW) -> Result:
    return CliRunner().invoke(program, ["next", *arguments], obj=now)


def data(*arguments: str, now: datetime = NOW) -> dict[str, Any]:
    result = run(*arguments, "--json", now=now)
    assert result.exit_code == 0, result.output
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


def complaint(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 2
    assert result.stderr == ""
    error: dict[str, Any] = json.loads(result.stdout)["error"]
    return error


def listed(*arguments: str) -> list[str]:
    return [occurrence["at"] for occurrence in data(*arguments)["occurrences"]]


def test_the_whole_page() -> None:
    result = run("30 1 * * *", "--tz", "America/New_York", "--count", "3")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "30 1 * * *",
        "  At 01:30 every day",
        "  America/New_York, now 2026-10-31 16:00 (-04:00 EDT)",
        "",
        "  Sun 2026-11-01 01:30  -04:00 EDT   in 9 h 29 min",
        "  Sun 2026-11-01 01:30  -05:00 EST   in 10 h 29 min  (the second time)",
        "  Mon 2026-11-02 01:30  -05:00 EST   in 1 d 10 h",
        "",
        "  ! fires twice on 2026-11-01 (01:30 comes twice in America/New_York)",
    ]


def test_the_data() -> None:
    found = data("30 2 * * *", "--tz", "America/New_York", "--count", "1")
    surprise = found.pop("surprises")
    assert found == {
        "expression": "30 2 * * *",
        "kind": "cron",
        "spec": "30 2 * * *",
        "posix": "30 2 * * *",
        "description": "At 02:30 every day",
        "notes": [],
        "zone": "America/New_York",
        "dst": "literal",
        "from": "2026-10-31T16:00:30-04:00",
        "remark": None,
        "occurrences": [{"at": "2026-11-01T02:30:00-05:00", "utc": "2026-11-01T07:30:00Z", "epoch": 1793518200}],
    }
    assert surprise == [
        {
            "date": "2027-03-14",
            "kind": "skipped",
            "times": ["02:30"],
            "sentence": "does not fire on 2027-03-14 (02:30 does not exist in America/New_York)",
        }
    ]


def test_another_dialect_is_read_and_shown() -> None:
    assert "  read as 0,15,30,45 * * * *" in run("*/15 * * * *", "--tz", "UTC").stdout.splitlines()
    assert "read as" not in run(" 0  12 * * * ", "--tz", "UTC").stdout
    assert data("@daily", "--tz", "UTC")["posix"] == "0 0 * * *"


def test_the_once_policy() -> None:
    arguments = ("30 1 * * *", "--tz", "America/New_York", "--count", "2")
    assert listed(*arguments) == ["2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"]
    assert listed(*arguments, "--dst", "once") == ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("2026-12-01", "2026-12-01T12:00:00-05:00"),
        ("2026-12-01T12:00", "2026-12-02T12:00:00-05:00"),  # the time itself is excluded
        ("2026-12-01T16:59:59Z", "2026-12-01T12:00:00-05:00"),
        ("2026-12-01 23:30:00+06:30", "2026-12-02T12:00:00-05:00"),
    ],
)
def test_from_is_read_in_the_zone_or_by_its_offset(start: str, first: str) -> None:
    assert listed("0 12 * * *", "--tz", "America/New_York", "--count", "1", "--from", start) == [first]


def test_from_a_time_that_does_not_exist_counts_from_the_change() -> None:
    found = data("0,30 * * * *", "--tz", "America/New_York", "--count", "1", "--from", "2027-03-14T02:15")
    assert found["occurrences"][0]["at"] == "2027-03-14T03:00:00-04:00"
    assert found["from"] == "2027-03-14T03:00:00-04:00"
    assert found["remark"] == "02:15 does not exist on 2027-03-14: counted from 03:00, which is included"


def test_from_a_time_that_comes_twice_counts_from_the_first() -> None:
    result = run("30 1 * * *", "--tz", "America/New_York", "--count", "1", "--from", "2026-11-01T01:30")
    lines = result.stdout.splitlines()
    assert "  ! 01:30 comes twice on 2026-11-01: counted from the first, -04:00 EDT" in lines
    assert "  Sun 2026-11-01 01:30  -05:00 EST   1 h later  (the second time)" in lines


def test_far_occurrences_are_told_in_years() -> None:
    result = run("0 0 29 2 *", "--tz", "UTC", "--count", "1", now=datetime(2097, 1, 1, tzinfo=UTC))
    assert "Fri 2104-02-29 00:00  +00:00 UTC   in 7 y 59 d" in result.stdout


def test_the_end_of_the_calendar() -> None:
    result = run("0 0 31 12 *", "--tz", "UTC", "--from", "9998-01-01")
    assert result.exit_code == 0
    assert "9999-12-31" in result.stdout
    assert "The calendar ends here." in result.stdout
    result = run("0 0 * * *", "--tz", "UTC", "--from", "9999-12-31T12:00")
    assert result.exit_code == 2
    assert "the calendar ends in 9999" in result.stderr


def test_clock_changes_are_told_up_to_the_end_of_the_calendar() -> None:
    found = data("30 1 * * *", "--tz", "America/New_York", "--from", "9999-06-01", "--count", "1")
    assert [surprise["date"] for surprise in found["surprises"]] == ["9999-11-07"]
    assert data("30 1 * * *", "--tz", "America/New_York", "--from", "9999-12-30T12:00")["surprises"] == []


# --- bad input --------------------------------------------------------------------------------------------------------


def test_a_bad_field_is_marked_and_what_is_right_is_told() -> None:
    result = run("0 24 * * *")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "Error: Invalid cron expression \"0 24 * * *\": hour field value '24' is out of range 0-23",
        "  0 24 * * *",
        "    ^^",
        "  The hour field takes 0-23, such as 3 or 9,17 or 9-17",
    ]


def test_a_bad_field_as_data() -> None:
    error = complaint("0 0 0 ? 13 MON")
    assert error["field"] == "month"
    assert error["value"] == "13"
    assert error["reason"] == "value '13' is out of range 1-12"
    assert error["right"].startswith("1-12")


def test_an_expression_without_equivalent() -> None:
    error = complaint("0 0 */2 * 1")
    assert error["field"] == "expression"
    assert error["value"] == "0 0 */2 * 1"
    assert "either one is enough" in error["message"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("america/new_york", ["America/New_York"]),
        ("New York", ["America/New_York"]),
        ("Europe/Berln", ["Europe/Berlin"]),
    ],
)
def test_an_unknown_zone_has_near_matches(typed: str, meant: list[str]) -> None:
    error = complaint("* * * * *", "--tz", typed)
    assert error["option"] == "--tz"
    assert error["value"] == typed
    assert error["suggestions"][:1] == meant
    assert f"Did you mean {meant[0]}" in run("* * * * *", "--tz", typed).stderr


@pytest.mark.parametrize("typed", ["", "../etc/passwd", "America", "/etc/localtime", "Nowhere/At_All", "a\x00b"])
def test_a_zone_that_is_none(typed: str) -> None:
    assert complaint("* * * * *", "--tz", typed)["value"] == typed


def test_a_from_in_english() -> None:
    shown = run("0 9 * * *", "--tz", "UTC", "--from", "1 march 2027 at 8am", "--json")
    assert shown.exit_code == 0, shown.output
    assert "2027-03-01T09:00" in shown.stdout


@pytest.mark.parametrize("typed", ["", "some day", "2026-13-01", "2026-11-01T25:00", "0001-01-01T00:00+14:00"])
def test_a_from_that_is_no_time(typed: str) -> None:
    error = complaint("* * * * *", "--tz", "UTC", "--from", typed)
    assert error["option"] == "--from"
    assert error["value"] == typed
    assert "ISO-8601" in error["right"]


def test_usage_errors_are_data_too() -> None:
    assert "--count" in complaint("* * * * *", "--count", "0")["message"]
    assert "EXPRESSION" in complaint()["message"]
    assert "--dst" in complaint("* * * * *", "--dst", "twice")["message"]


def test_forgotten_quotes() -> None:
    result = run("0", "3", "x", "y", "1-5")
    assert result.exit_code == 2
    assert "Put the expression in quotes" in result.stderr


def test_what_was_typed_cannot_steer_the_terminal() -> None:
    result = run("\x1b[31m * * * *")
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
    assert "\\x1b[31m" in result.stderr
