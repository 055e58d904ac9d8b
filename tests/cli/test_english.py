"""English in `noonbell next` and `noonbell explain`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from noonbell.cli import program
from tests.patience import PATIENCE_SECONDS

NOW = datetime(2026, 11, 16, 10, 20, 30, tzinfo=UTC)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(program, [*arguments], obj=NOW)


def data(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


def test_next_shows_what_was_understood() -> None:
    result = run("next", "every weekday at 9 in Kyiv", "--count", "2")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "every weekday at 9 in Kyiv",
        "  read as 0 9 * * 1-5",
        "  At 09:00, Monday to Friday",
        '  ("9" is read on the 24-hour clock: 09:00; for 21:00 say 9pm)',
        "  Europe/Kyiv, now 2026-11-16 12:20 (+02:00 EET)",
        "",
        "  Tue 2026-11-17 09:00  +02:00 EET   in 20 h 39 min",
        "  Wed 2026-11-18 09:00  +02:00 EET   in 1 d 20 h",
    ]


def test_next_of_an_interval_and_of_a_one_shot() -> None:
    result = run("next", "every 91 seconds", "--tz", "UTC", "--count", "1")
    assert "  read as an interval of 91 s" in result.stdout.splitlines()
    assert "  Mon 2026-11-16 10:22:01  +00:00 UTC   in 1 min" in result.stdout.splitlines()
    found = data("next", "tomorrow at 5pm", "--tz", "Europe/Kyiv")
    assert [occurrence["at"] for occurrence in found["occurrences"]] == ["2026-11-17T17:00:00+02:00"]
    assert (found["kind"], found["spec"], found["posix"]) == ("one_shot", "2026-11-17T17:00+02:00", None)
    late = run("next", "tomorrow at 5pm", "--tz", "UTC", "--from", "2027-01-01")
    assert late.exit_code == 2
    assert "it comes once" in late.stderr


def test_clock_changes_are_told() -> None:
    result = run("next", "every night at 2:30 in New York", "--count", "1")
    assert "  ! does not fire on 2027-03-14 (02:30 does not exist in America/New_York)" in result.stdout


def test_explain_shows_fields_where_there_are_any() -> None:
    assert "  weekday  1-5" in run("explain", "every weekday at 9am", "--tz", "UTC").stdout.splitlines()
    found = data("explain", "every 7 minutes", "--tz", "UTC")
    assert (found["kind"], found["spec"], found["fields"]) == ("interval", "420", None)
    assert found["next"] == "2026-11-16T10:27:30+00:00"
    assert "do not divide an hour" in found["notes"][0]


def test_a_refusal_is_marked_and_offers_what_comes_near() -> None:
    result = run("next", "every dya at 9am")
    assert result.exit_code == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0].startswith('Error: Cannot understand "every dya at 9am" at "dya" (character 7): ')
    assert lines[1:3] == ["  every dya at 9am", "        ^^^"]
    assert lines[3].startswith("  Valid here: 15 minutes, hour, day, ")
    assert "  Did you mean: every day at 9am" in lines


@pytest.mark.parametrize("command", ["next", "explain"])
def test_a_refusal_as_data(command: str) -> None:
    result = run(command, "every day at 25:00", "--json")
    assert result.exit_code == 2
    assert result.stderr == ""
    error = json.loads(result.stdout)["error"]
    assert (error["position"], error["end"], error["word"]) == (13, 18, "25:00")
    assert error["suggestions"] == ["every day at 23:00"]
    assert error["accepted"] == ["a time from 00:00 to 23:59"]


def test_two_zones_are_one_too_many() -> None:
    result = run("next", "every weekday at 9am in Kyiv", "--tz", "UTC")
    assert result.exit_code == 2
    assert "names the time zone Europe/Kyiv" in result.stderr
    assert run("next", "every weekday at 9am in Kyiv", "--tz", "Europe/Kyiv").exit_code == 0


def test_next_loads_nothing_of_the_service() -> None:
    script = (
        "import sys; from noonbell.cli import main\n"
        "sys.argv = ['noonbell', 'next', 'every weekday at 9am in Kyiv']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "heavy = {'fastapi', 'asyncpg', 'aiohttp', 'pydantic', 'uvicorn', 'redis', 'asyncio', 'msgspec', 'apsw'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert found.stdout.splitlines()[0] == "every weekday at 9am in Kyiv"
    assert found.stdout.splitlines()[-1] == "[]"


def test_the_language_uses_the_standard_library_only() -> None:
    script = (
        "import sys; before = set(sys.modules)\n"
        "from datetime import datetime, UTC; from noonbell.language import parse\n"
        "parse('every day at 9am in Kyiv', now=datetime.now(UTC))\n"
        "tops = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "own = {name for name in tops if name.startswith('_sysconfigdata_')}\n"
        "print(sorted(tops - own - sys.stdlib_module_names - {'noonbell', 'tzdata'}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert found.stdout.splitlines()[-1] == "[]"


def test_the_page_shows_what_the_program_says() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```console\n\$ noonbell next \"(.*?)\"\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert len(shown) == 1
    for phrase, output in shown:
        assert run("next", phrase).stderr == output
