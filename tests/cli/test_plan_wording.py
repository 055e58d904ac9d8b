"""`noonbell plan` and `apply` as somebody meets them for the first time: what is missing is told with what to do."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from noonbell.cli import program

NOW = datetime(2026, 11, 15, 12, 0, 30, tzinfo=UTC)
TEXT = """
name = "billing"
[defaults]
action = { kind = "callback", name = "work" }
[quiet_hours.nights]
windows = [
    { weekdays = [0, 1, 2, 3, 4, 5, 6], from = "22:00", to = "06:00", timezone = "UTC" },
    { dates = ["2026-12-25"], from = "00:00", to = "24:00", timezone = "UTC" },
]
[schedules.poll]
every = "15m"
"""


def run(*arguments: str, **more: Any) -> Result:
    return CliRunner().invoke(program, list(arguments), obj=NOW, **more)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "schedules.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_a_store_that_is_not_there_yet_is_answered_with_how_to_make_it(
    file: Path, tmp_path: Path, command: str
) -> None:
    found = run(command, str(file), "--store", f"sqlite:///{tmp_path}/new.db")
    assert found.exit_code == 1
    assert "File not found" in found.stderr
    assert "noonbell apply FILE --create creates a ledger there" in found.stderr


def test_a_store_that_cannot_be_read_is_not(file: Path, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, and long enough to be seen as none\n" * 40)
    found = run("plan", str(file), "--store", f"sqlite:///{tmp_path}/text.db")
    assert found.exit_code == 1
    assert "--create" not in found.stderr


def test_without_a_store_it_is_said_how_one_is_named(file: Path) -> None:
    found = run("plan", str(file), env={"NOONBELL_STORE": None})
    assert found.exit_code == 1
    assert "Missing option '--db', '--store' or '--server'" in found.stderr
    assert "--store sqlite:///app.db, or NOONBELL_STORE" in found.stderr


def test_quiet_hours_are_shown_as_people_say_them(file: Path, tmp_path: Path) -> None:
    found = run("apply", str(file), "--store", f"sqlite:///{tmp_path}/new.db", "--create", "--yes")
    assert "windows: none → daily 22:00-06:00 UTC; 2026-12-25 all day UTC" in found.stdout
    assert "1 to create, 0 to change, 0 to delete, 0 unchanged; quiet hours: 1 to create" in found.stdout


def test_an_end_in_the_past_is_found_where_it_stands(file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT.replace("[defaults]", "[defaults]\nend_at = 2020-01-01T00:00:00"), encoding="utf-8")
    found = run("apply", str(file), "--store", f"sqlite:///{tmp_path}/new.db", "--create", "--yes")
    assert found.exit_code == 1
    assert ":4:10: defaults.end_at '2020-01-01T00:00:00+00:00' is in the past: it is 2026-11-15T12:00:30+00:00 now" in (
        found.stderr
    )


def test_the_team_is_no_matter_of_a_file(file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT + 'team = "other"\n', encoding="utf-8")
    found = run("apply", str(file), "--store", f"sqlite:///{tmp_path}/new.db", "--create", "--yes")
    assert found.exit_code == 1
    assert "schedules.poll.team is not a key of a schedule" in found.stderr


def test_a_zone_that_is_nearly_right_is_answered_with_the_right_one(file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT.replace('to = "06:00", timezone = "UTC"', 'to = "06:00", timezone = "Kyiv"'), encoding="utf-8")
    found = run("apply", str(file), "--store", f"sqlite:///{tmp_path}/new.db", "--create", "--yes")
    assert "windows[0].timezone 'Kyiv' is not an IANA zone; did you mean Europe/Kyiv?" in found.stderr
