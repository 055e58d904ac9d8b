"""`noonbell explain`."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from click.testing import CliRunner, Result

from noonbell.cli import program

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["explain", *arguments], obj=NOW)


def test_the_whole_page() -> None:
    result = run("30 1 1,15 * sun", "--tz", "America/New_York")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "30 1 1,15 * sun",
        "  read as 30 1 1,15 * 0",
        "  At 01:30 on day 1 and 15 of the month, or on any Sunday",
        "",
        "  minute   30",
        "  hour     1",
        "  day      1,15",
        "  month    *",
        "  weekday  0",
        "",
        "  Day and weekday are both given: it fires when either matches.",
        "  closest  1 d apart",
        "  next     Sun 2026-06-07 01:30 -04:00 EDT, in 5 d 17 h (America/New_York)",
        "  ! fires twice on 2026-11-01 (01:30 comes twice in America/New_York)",
    ]


def test_the_data() -> None:
    result = run("0,30 9 * 2 *", "--tz", "UTC", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "expression": "0,30 9 * 2 *",
        "kind": "cron",
        "spec": "0,30 9 * 2 *",
        "posix": "0,30 9 * 2 *",
        "description": "At 09:00 and 09:30 every day in February",
        "notes": [],
        "fields": {
            "minute": [0, 30],
            "hour": [9],
            "day": list(range(1, 32)),
            "month": [2],
            "weekday": list(range(7)),
        },
        "day_rule": "every day",
        "minimum_spacing_seconds": 1800,
        "zone": "UTC",
        "dst": "literal",
        "next": "2027-02-01T09:00:00+00:00",
        "surprises": [],
    }


def test_bad_input() -> None:
    result = run("0 0 L * *", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["field"] == "day"
    result = run("0 0 * *")
    assert result.exit_code == 2
    assert "An expression is five fields: minute hour day month weekday" in result.stderr
