"""The examples of docs/cli.md, run one after the other on a fresh database."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from noonbell.cli.cli_errors import WRONG
from tests.cli.conftest import At

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    assert len(lines) > 20
    at = At(NOONBELL_STORE=f"sqlite:///{tmp_path}/docs.db")
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "noonbell"
        result = at.run(*arguments)
        # there are schedules by then and no engine is up, which is a finding
        assert result.exit_code == (WRONG if arguments[0] == "doctor" else 0), f"{line}\n{result.output}"


def test_the_first_example_says_what_the_page_says(tmp_path: Path) -> None:
    at = At(NOONBELL_STORE=f"sqlite:///{tmp_path}/docs.db")
    shown = PAGE.read_text(encoding="utf-8").split("```console\n", 1)[1].splitlines()
    said = at.said(*shlex.split(shown[0].removeprefix("$ noonbell "))).splitlines()
    assert said[:4] == shown[1:5]


def test_every_exit_status_is_told() -> None:
    from noonbell.cli import cli_errors

    statuses = {
        cli_errors.WRONG, cli_errors.REFUSED, cli_errors.UNREACHABLE, cli_errors.NOT_PERMITTED, cli_errors.INTERRUPTED
    }  # fmt: skip
    told = set(map(int, re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)))
    assert told == {0, *statuses}
