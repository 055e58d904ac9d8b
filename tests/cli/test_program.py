"""The program as a process: its script, its help, colours, the host's zone and completion."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from noonbell import __version__
from noonbell.cli import program
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "noonbell", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env={**os.environ, **environment},
    )


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What the program writes when its stdout is a terminal."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-m", "noonbell", *arguments],
            stdout=theirs,
            timeout=PATIENCE_SECONDS,
            check=True,
            env={"PATH": os.environ["PATH"], "TERM": "xterm-256color", "COLUMNS": "40", **environment},
        )
    finally:
        os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 65536):
            written += chunk
    except OSError:  # Linux says EIO where the other end is closed
        pass
    finally:
        os.close(ours)
    return written.decode()


def test_version_and_help() -> None:
    assert CliRunner().invoke(program, ["--version"]).output == f"noonbell {__version__}\n"
    shown = CliRunner().invoke(program, ["--help"]).output
    assert re.search(r"^ +explain +Explain in English", shown, re.MULTILINE)
    assert re.search(r"^ +next +List the next", shown, re.MULTILINE)
    assert "noonbell completion bash" in shown


def test_the_help_lines_name_commands_that_exist() -> None:
    with program.make_context("noonbell", ["next", "@daily"]) as ctx:
        for name in program.list_commands(ctx):
            command = program.get_command(ctx, name)
            assert command is not None
            assert command.name == name
        assert program.get_command(ctx, "nonsense") is None


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from noonbell.cli import main\n"
        "sys.argv = ['noonbell', '--help']\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'rich', 'tzlocal', 'apsw', 'msgspec', 'asyncio', 'noonbell.cron'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert found.stdout.splitlines()[-1] == "[]"


def test_the_hosts_zone_is_the_default() -> None:
    found = process("next", "0 0 * * *", "--json", TZ="Asia/Tokyo")
    assert found.returncode == 0
    assert json.loads(found.stdout)["zone"] == "Asia/Tokyo"
    assert json.loads(found.stdout)["occurrences"][0]["at"].endswith("T00:00:00+09:00")


def test_a_host_zone_that_cannot_be_read() -> None:
    found = process("next", "0 0 * * *", TZ="Nowhere/At_All")
    assert found.returncode == 2
    assert "--tz" in found.stderr
    assert "Traceback" not in found.stderr


def test_bad_input_ends_with_two_and_no_traceback() -> None:
    found = process("next", "60 * * * *")
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.startswith('Error: Invalid cron expression "60 * * * *": minute field')
    assert "Traceback" not in found.stderr


def test_colours_on_a_terminal_only_and_not_with_no_color() -> None:
    arguments = ("next", "30 1 * * *", "--tz", "America/New_York", "--from", "2026-10-31")
    assert "\x1b[1;32m01:30" in on_a_terminal(*arguments)
    assert "\x1b[1;32m" not in on_a_terminal(*arguments, NO_COLOR="1")
    assert "\x1b" not in process(*arguments).stdout


def test_lines_are_not_wrapped_on_a_narrow_terminal() -> None:
    shown = on_a_terminal("next", "30 1 * * *", "--tz", "America/New_York", "--from", "2026-10-31", NO_COLOR="1")
    assert "(01:30 comes twice in America/New_York)" in shown


def test_shell_completion() -> None:
    words = {"_NOONBELL_COMPLETE": "bash_complete", "COMP_WORDS": "noonbell ne", "COMP_CWORD": "1"}
    assert process(**words).stdout == "plain,next\n"
    words = {**words, "COMP_WORDS": "noonbell next --tz europe/ky", "COMP_CWORD": "3"}
    assert process(**words).stdout == "plain,Europe/Kyiv\n"


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m noonbell next '* * * * *' --tz UTC --count 5000 | head -n 1"
    found = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert found.stdout == "* * * * *\n"
    assert found.stderr == ""


def test_the_example_runs() -> None:
    found = subprocess.run(
        [sys.executable, ROOT / "examples" / "next_fires.py"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stderr == ""
    assert "fires twice on 2026-11-01" in found.stdout
