"""What a user meets first: help, completion, what is loaded; `add` in its many forms; `top` on a terminal."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from datetime import timedelta
from pathlib import Path

import click
import pytest

from noonbell import Scheduler
from noonbell.cli.program import program
from noonbell.cli.quiet_windows import read_window, window_text
from tests.cli.conftest import At, StreamInFlight
from tests.patience import PATIENCE_SECONDS

HOOK = ("--http", "https://example.com/hook")


# --- help and loading -------------------------------------------------------------------------------------------------


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = []
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
        else:
            found.append(((*path, name), command))
    return found


def test_every_command_speaks_json_and_says_what_it_does() -> None:
    assert isinstance(program, click.Group)
    silent = []
    for path, command in commands(program):
        assert command.help, path
        if not any("--json" in param.opts for param in command.params):
            silent.append(" ".join(path))
    assert silent == []


def test_the_help_fits_eighty_columns_and_groups_the_commands() -> None:
    shown = At().said("--help")
    assert max(map(len, shown.splitlines())) <= 80
    for title in ("Schedules:", "History:", "Files:", "Notices:", "Keys and users:", "Service:"):
        assert f"\n{title}\n" in shown
    assert "Exit status:" in shown


@pytest.mark.parametrize("arguments", [["--help"], ["next", "@daily", "--tz", "UTC"], ["completion", "bash"]])
def test_what_needs_no_service_loads_none(arguments: list[str]) -> None:
    script = (
        "import sys; from noonbell.cli import main\n"
        f"sys.argv = ['noonbell', *{arguments!r}]\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'fastapi', 'asyncpg', 'aiohttp', 'uvicorn', 'pydantic', 'redis', 'cryptography', 'apsw'}\n"
        "print('loaded', sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert found.stdout.splitlines()[-1] == "loaded []"


def test_a_command_that_does_not_exist() -> None:
    assert At().refused("shedules") == 'Unknown command "shedules"'
    assert "Did you mean: schedules" in At().run("shedules").stderr


# --- completion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shell", "said"), [("bash", "complete -o"), ("zsh", "#compdef"), ("fish", "complete --no")])
def test_completion_scripts(shell: str, said: str) -> None:
    script = At().said("completion", shell)
    assert said in script
    assert f"_NOONBELL_COMPLETE={shell}_complete" in script


# The program as it is, but for the two seconds after which it gives up: a slow machine may need more. One process
# completes several lines, each after a line that holds its number.
COMPLETE = f"""
import json, os, sys
from noonbell.cli import completion_sources, main
completion_sources._SECONDS = {PATIENCE_SECONDS}
for number, words in enumerate(json.loads(sys.argv.pop())):
    print(number, flush=True)
    os.environ.update(COMP_WORDS=" ".join(["noonbell", *words]), COMP_CWORD=str(len(words)))
    try:
        main()
    except SystemExit:
        sys.stdout.flush()
"""


def completed(at: At, *lines: list[str]) -> list[list[str]]:
    environment = {
        **os.environ,
        **{key: value for key, value in at.environment.items() if value is not None},
        "_NOONBELL_COMPLETE": "bash_complete",
    }
    found = subprocess.run(
        [sys.executable, "-c", COMPLETE, json.dumps(lines)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env=environment,
    )
    assert found.stderr == ""
    told: list[list[str]] = []
    for line in found.stdout.splitlines():
        if line == str(len(told)):
            told.append([])
        elif line:
            told[-1].append(line.partition(",")[2])
    return told


def test_names_are_completed(local: At, tmp_path: Path) -> None:
    local.said("schedules", "add", "every hour", "--name", "report", *HOOK)
    local.said("schedules", "add", "every hour", "--name", "restore", *HOOK)
    told = completed(local, ["schedules", "sh"], ["schedules", "show", "re"], ["why", "rep"])
    assert told == [["show"], ["report", "restore"], ["report"]]
    away = At(NOONBELL_STORE=f"sqlite:///{tmp_path}/none.db")
    assert completed(away, ["schedules", "show", "re"]) == [[]]


# --- adding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "action"),
    [
        (("--command", "rsync -a '/srv/my files' b:", "--timeout", "60"),
         {"kind": "command", "argv": ["rsync", "-a", "/srv/my files", "b:"], "timeout_seconds": 60}),
        (("--shell", "a | b"), {"kind": "command", "shell": True, "command": "a | b"}),
        (("--callback", "report"), {"kind": "callback", "name": "report"}),
        (("--message", "team", "--payload", '{"type": "x"}'), {"kind": "message", "to": "team"}),
        ((*HOOK, "--method", "put", "--header", "X-A: b", "--body", '{"n": 1}', "--timeout", "5"),
         {"kind": "http", "method": "PUT", "headers": {"X-A": "b"}, "body": {"json": {"n": 1}}}),
        (("--action", '{"kind": "callback", "name": "whole"}'), {"kind": "callback", "name": "whole"}),
    ],
)  # fmt: skip
def test_actions(local: At, options: tuple[str, ...], action: dict[str, object]) -> None:
    made = local.data("schedules", "add", "every hour", "--name", "x", *options)
    assert {key: made["action"][key] for key in action} == action


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("every hour", "--name", "x"), "The action is missing"),
        (("every hour", *HOOK), "The name is missing: pass --name"),
        (("every hour", "--name", "x", *HOOK, "--callback", "y"), "--http and --callback exclude each other"),
        (("every hour", "--name", "x", "--callback", "y", "--payload", "{"), "--payload is not JSON"),
        (("every hour", "--name", "x", *HOOK, "--header", "nothing"), "must be NAME:VALUE"),
        (("every hour", "--name", "x", "--body", "y"), "--body requires --http"),
        (("every hour", "--name", "x", "--command", "a 'b"), "--command cannot be split into words"),
        (("every hour at 9am in Kyiw", "--name", "x", *HOOK), "Cannot understand"),
        (("9am in Kyiv", "--tz", "UTC", "--name", "x", *HOOK), "give one of them"),
        (("61 * * * *", "--name", "x", *HOOK), "minute field"),
    ],
)
def test_what_cannot_be_added(local: At, arguments: tuple[str, ...], said: str) -> None:
    assert said in local.refused("schedules", "add", *arguments)
    assert local.data("schedules", "list")["items"] == []


def test_a_dry_run_needs_no_place_and_makes_nothing() -> None:
    told = At().data("schedules", "add", "every day at 1:30 in New York", "--dry-run", "--count", "2")
    assert told["understood"]["spec"] == "30 1 * * *"
    assert len(told["upcoming"]) == 2
    assert any(one["kind"] == "twice" for one in told["surprises"])
    assert "Nothing was created" in At().said("schedules", "add", "noon every day", "--dry-run", "--tz", "UTC")


def test_a_database_is_made_where_that_is_asked_for(tmp_path: Path) -> None:
    at = At(NOONBELL_STORE=f"sqlite:///{tmp_path}/new.db")
    add = ("schedules", "add", "every hour", "--name", "x", "--tz", "UTC", *HOOK)
    assert "nothing was created" in at.refused(*add)
    assert at.data(*add, "--create")["name"] == "x"


def test_the_database_of_a_service_in_this_directory(
    local: At, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.said("schedules", "add", "every hour", "--name", "here", *HOOK)
    monkeypatch.chdir(tmp_path)
    assert "where are the schedules?" in At().refused("schedules", "list")
    (tmp_path / "noonbell.toml").write_text('store = "sqlite:///local.db"\n', encoding="utf-8")
    assert [one["name"] for one in At().data("schedules", "list")["items"]] == ["here"]


def test_two_with_one_name_are_told_apart_by_their_ids(local: At, tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text(
        'name = "f"\n[schedules.one]\nname = "same"\nevery = 60\naction = {kind = "callback", name = "x"}\n'
    )
    local.said("apply", str(file), "--yes")
    local.said("schedules", "add", "every hour", "--name", "same", "--id", "two", *HOOK)
    assert "2 schedules are named" in local.refused("schedules", "show", "same")
    assert local.data("schedules", "show", "two")["managed_by"] == "api"


# --- quiet windows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("Mon-Fri 22:00-06:00 Europe/Kyiv", "Mon-Fri 22:00-06:00 Europe/Kyiv"),
        ("weekends all day", "Sun,Sat all day UTC"),
        ("fri-mon 9:00 - 10:30", "Sun,Mon,Fri,Sat 09:00-10:30 UTC"),
        ("daily 12:00-13:00 from 2026-06-01 to 2026-08-31", "daily 12:00-13:00 UTC from 2026-06-01 to 2026-08-31"),
        ("2026-12-25,2026-12-26 all-day Europe/Kyiv", "2026-12-25,2026-12-26 all day Europe/Kyiv"),
    ],
)
def test_windows_are_read_and_written(typed: str, read: str) -> None:
    window = read_window(typed, "UTC")
    assert window_text(window) == read
    assert read_window(window_text(window), "Asia/Tokyo") == window


@pytest.mark.parametrize(
    ("typed", "said"),
    [("Mon-Fri", "names no hours"), ("22:00-06:00", "names no days"), ("Mon 22:00-06:00 never", '"never" is neither')],
)
def test_windows_that_are_none(local: At, typed: str, said: str) -> None:
    assert said in local.refused("quiet", "add", "q", "--window", typed)


# --- a terminal -------------------------------------------------------------------------------------------------------


class Terminal:
    """The program on a terminal of a size, which can be typed at."""

    def __init__(self, at: At, *arguments: str, columns: int, script: str | None = None) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        given = {key: value for key, value in at.environment.items() if value is not None}
        environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "HOME": "/nowhere", **given}
        self.process = subprocess.Popen(
            [sys.executable, *(["-m", "noonbell", *arguments] if script is None else ["-c", script])],
            stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.seen = ""

    def until(self, pattern: str) -> str:
        """What was written, once it contains the pattern."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while not re.search(pattern, self.seen):
            assert time.monotonic() < limit, self.seen
            if select.select([self.ours], [], [], 1)[0]:
                try:
                    self.seen += os.read(self.ours, 65_536).decode(errors="replace")
                except OSError:  # Linux says EIO where the other end is closed
                    break
        return self.seen

    def end(self) -> int:
        try:
            while piece := os.read(self.ours, 65_536):
                self.seen += piece.decode(errors="replace")
        except OSError:
            pass
        status = self.process.wait(PATIENCE_SECONDS)
        os.close(self.ours)
        return status


@pytest.mark.parametrize("columns", [80, 140])
def test_top_is_live_and_q_quits(local: At, columns: int) -> None:
    local.said("schedules", "add", "every hour", "--name", "first-of-all", *HOOK)
    terminal = Terminal(local, "top", "--every", "0.5", columns=columns)
    terminal.until("first-of-all")
    assert "no engine is up" in terminal.seen
    local.said("schedules", "add", "every hour", "--name", "second-one", *HOOK)
    terminal.until("second-one")
    os.write(terminal.ours, b"q")
    assert terminal.end() == 0


@pytest.mark.parametrize("columns", [80, 140])
def test_a_list_fits_the_terminal_and_says_everything(local: At, columns: int) -> None:
    for number in range(3):
        name = f"a rather long name of a schedule, with the number {number}"
        local.said("schedules", "add", "15,45 9,17 * * 1,3,5", "--name", name, "--tz", "Europe/Kyiv", *HOOK)
    terminal = Terminal(local, "schedules", "list", columns=columns)
    assert terminal.end() == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.seen)
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns
    assert " ".join(shown.split()).count("in ") >= 3
    for word in ("rather", "number", "2", "09:15", "Friday"):
        assert word in shown


def test_long_work_shows_how_far_it_has_come(local: At) -> None:
    script = (
        "from noonbell.cli import progress\n"
        "progress._PATIENCE_SECONDS = 0\n"
        "with progress.working('Counting', as_json=False, unit='rows') as work:\n"
        "    work.update(1234, 2000); input()\n"
        "with progress.working('Silent', as_json=True) as work:\n"
        "    work.update(1)\n"
    )
    terminal = Terminal(local, script=script, columns=80)
    terminal.until("Counting[^\n]*1,234 rows")
    os.write(terminal.ours, b"\n")
    assert terminal.end() == 0
    assert "Silent" not in terminal.seen


def test_json_of_a_list_is_one_line(local: At) -> None:
    local.said("schedules", "add", "every hour", "--name", "x", *HOOK)
    shown = local.said("schedules", "list", "--json")
    assert shown.count("\n") == 1
    assert json.loads(shown)["items"][0]["name"] == "x"


def test_the_examples_of_every_command_fit_eighty_columns() -> None:
    assert isinstance(program, click.Group)
    long: list[str] = []
    for path, command in commands(program):
        if path == ("serve",):
            continue
        for text in (command.epilog or "", command.help or ""):
            examples = [line for line in text.splitlines() if line.strip().startswith("noonbell ")]
            long += [f"{' '.join(path)}: {line}" for line in examples if len(line.strip()) > 78]
    assert long == []


def test_declared_tasks_are_seen_and_left_to_their_program(local: At) -> None:
    async def nothing() -> None:
        return

    async def declare() -> None:
        scheduler = Scheduler(str(local.environment["NOONBELL_STORE"]), name="app")
        await scheduler.initialize([("hourly", "0 * * * *", nothing, timedelta(minutes=5))])
        await scheduler.stop()

    asyncio.run(declare())
    local.said("schedules", "add", "every hour", "--name", "mine", *HOOK)
    listed = local.data("schedules", "list")["items"]
    assert [(one["name"], one["editable"], one["lane"]) for one in listed] == [
        ("hourly", False, None),
        ("mine", True, "default"),
    ]
    assert [one["name"] for one in local.data("schedules", "list", "--owner", "scheduler:app")["items"]] == ["hourly"]
    assert "calls hourly" in local.said("schedules", "show", "hourly")
    for change in (
        ("pause", "hourly"),
        ("edit", "hourly", "--name", "x"),
        ("rm", "hourly", "--yes"),
        ("trigger", "hourly"),
    ):
        assert 'is declared by the scheduler "app"' in local.refused("schedules", *change)


def test_what_stands_in_the_way_of_runs_is_said(local: At) -> None:
    http = ("schedules", "add", "every hour", "--name", "web", "--http", "https://example.com/")
    result = local.run(*http)
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        'Warning: No engine of the lane "default" is up: runs start when one is started (noonbell serve, or noonbell '
        "worker).\n"
    )
    result = local.run("schedules", "add", "every hour", "--name", "c", "--command", "/usr/bin/backup --full")
    assert result.exit_code == 0, result.output
    assert "Warning: Commands run only in an engine that allows them: noonbell serve --command " in result.stderr
    result = local.run("schedules", "add", "every hour", "--name", "p", "--callback", "report", "--json")
    told = json.loads(result.stdout)["warnings"]
    assert [one.split(" is ")[0] for one in told] == ['No engine of the lane "default"', 'No callback "report"']
    assert result.stderr == ""
    result = local.run("schedules", "trigger", "web")
    assert "Warning: No engine" in result.stderr
    assert "is queued" in result.stdout


def test_a_service_with_an_engine_gives_no_warning(served: StreamInFlight) -> None:
    result = served.run("schedules", "add", "every hour", "--name", "web", "--http", "https://example.com/")
    assert (result.exit_code, result.stderr) == (0, "")
