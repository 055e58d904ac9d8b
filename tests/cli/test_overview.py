"""Several engines in `noonbell top` and `noonbell doctor`, on a narrow terminal too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from noonbell.cli.backend.backend_protocol import EngineUp
from noonbell.cli.connection_target import ConnectionTarget
from noonbell.cli.doctor import Lanes, lane_findings
from noonbell.cli.overview import Look, drawn

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def engine(pid: int, host: str | None = "ada") -> EngineUp:
    load = {"running": 3, "started_per_minute": 60, "late_p99_seconds": 0.05}
    since = NOW - timedelta(minutes=5)
    return EngineUp("default", "up", since, since, 2.0, "0.1.0", "2026a", load, f"{host}-{pid}", host, pid, 2.0)


def lines(engines: list[EngineUp], width: int, height: int = 40) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, color_system=None)
    seen = Look(NOW, engines, [], more=False, runs=[], failures=[])
    with console.capture() as shown:
        console.print(drawn(seen, "postgresql://…@database.internal.example.org:5432/noonbell", width, height))
    return shown.get().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_engines_fit_the_line(width: int) -> None:
    shown = lines([engine(pid) for pid in (10_001, 10_002)], width)
    assert shown[0].startswith("noonbell  12:00:00 UTC  default (up 5 min, 2 engines)  postgresql://")
    assert shown[1].startswith("0 active"), "the first line is not broken"
    (row,) = [line for line in shown if "10001" in line]
    assert "3 in flight, 60/min" in row
    assert "seen 2.0 s ago  0.1.0" in row
    assert ("late p99 50 ms" in row) == (width == 120)


def test_of_many_engines_the_first_are_shown_and_the_others_counted() -> None:
    shown = lines([engine(pid) for pid in range(10_001, 10_012)], 80)
    assert sum("in flight" in line for line in shown) == 8
    assert any(line.startswith("and 3 more") for line in shown)


def test_the_doctor_names_the_processes_of_each_host() -> None:
    place = ConnectionTarget("sqlite:///x.db", None, as_json=False, now=NOW)
    (found,) = lane_findings(Lanes([engine(1), engine(2), engine(3, "bob")], {"default": 5}, more=False), place)
    assert found.told == "default has been up for 5 min, by 3 engines (ada, processes 1, 2; bob, process 3)"
    (found,) = lane_findings(Lanes([engine(1, host=None)], {}, more=False), place)
    assert found.told == "default has been up for 5 min, by an engine"


def test_the_doctor_says_that_not_all_schedules_were_looked_at() -> None:
    place = ConnectionTarget("sqlite:///x.db", None, as_json=False, now=NOW)
    _, found = lane_findings(Lanes([engine(1)], {"default": 2_000, "reports": 1_000}, more=True), place)
    assert (found.level, found.told.rpartition("; ")[2]) == ("wrong", "schedules: at least 1000")
