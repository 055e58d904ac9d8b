"""What a stranger does first, with a copy of the sources: install, run, make a schedule, see it fire, ask why, stop.

The package is built as a wheel and installed into an empty environment, which finds its dependencies among those of the
tests: so nothing is fetched. What is asked over HTTP is asked by `curl` where there is one, as the documents show it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pytest

from noonbell import __version__
from tests.patience import PATIENCE_SECONDS
from tests.store.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parent.parent.parent
FIVE_MINUTES = 300.0
T = TypeVar("T")


def _own_warnings() -> dict[str, str]:
    """The environment of tools whose warnings are not ours."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a fresh copy of the sources."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"],
        cwd=copy, env=_own_warnings(), capture_output=True, text=True, check=False, timeout=FIVE_MINUTES,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (made,) = (copy / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel, and nothing of this checkout."""
    environment = tmp_path_factory.mktemp("environment") / "venv"
    python = environment / "bin" / "python"
    commands = [
        [sys.executable, "-m", "venv", "--without-pip", str(environment)],
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps",
         "--disable-pip-version-check", str(wheel)],
    ]  # fmt: skip
    for command in commands:
        done = subprocess.run(
            command, env=_own_warnings(), capture_output=True, text=True, check=False, timeout=FIVE_MINUTES
        )
        assert done.returncode == 0, done.stderr
    (packages,) = environment.glob("lib/python3*/site-packages")
    # a line of this file is a place to look for modules; the lines of the files over there are not read
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin"


class Stranger:
    """A service that was started by its console script, and somebody who reads what it prints."""

    def __init__(self, programs: Path, folder: Path, *arguments: str) -> None:
        self.until = time.monotonic() + FIVE_MINUTES
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NOONBELL_", "PYTHON"))}
        self._environment = {**kept, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
        self._folder = folder
        self._log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            ["noonbell", "serve", "--port", "0", *arguments], cwd=folder, env=self._environment,  # noqa: S607 - found on the path, as by everybody
            stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        self.said = self._read()
        self.address = re.findall(r"is up at (\S+)", self.said)[0]
        self.key = re.findall(r"Bearer (nbk_[\w-]+)", self.said)[0]

    def _read(self) -> str:
        lines = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                return "".join(lines)
        raise AssertionError(f"it did not start: {''.join(lines)}{self.log}")

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text()

    def shell(self, line: str) -> str:
        """What a line that was printed or documented gives in a shell."""
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=self._folder, env=self._environment, capture_output=True, text=True,
            check=False, timeout=self.left,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def left(self) -> float:
        left = self.until - time.monotonic()
        assert left > 0, "the five minutes are over"
        return left

    def ask(self, path: str, body: object = None) -> Any:
        url = self.address + path
        if shutil.which("curl") is not None:
            data = "" if body is None else f"-H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
            key = f"-H 'Authorization: Bearer {self.key}'"
            return json.loads(self.shell(f"curl -sS --fail-with-body {key} {data} {shlex.quote(url)}"))
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=sent, headers=headers)  # noqa: S310 - our own service
        with urllib.request.urlopen(request, timeout=self.left) as answer:  # noqa: S310 - as above
            return json.load(answer)

    def page(self, path: str) -> tuple[str, bytes]:
        """A page that needs no key: what kind it is, and what stands in it."""
        with urllib.request.urlopen(self.address + path, timeout=self.left) as answer:  # noqa: S310 - our own service
            return str(answer.headers["content-type"]), answer.read()

    def eventually(self, look: Callable[[], T]) -> T:
        while True:
            found = look()
            if found:
                return found
            assert self.left
            time.sleep(0.1)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(self.left)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


@pytest.fixture
def start(installed: Path, tmp_path: Path) -> Iterator[Callable[..., Stranger]]:
    began: list[Stranger] = []

    def make(*arguments: str) -> Stranger:
        began.append(Stranger(installed, tmp_path, *arguments))
        return began[-1]

    yield make
    for one in began:
        one.close()


def lived_through(stranger: Stranger) -> None:
    """From the first schedule to Ctrl-C."""
    # the line that was printed works as it stands
    (line,) = re.findall(r"^ *(curl .*)$", stranger.said, flags=re.MULTILINE)
    if shutil.which("curl") is not None:
        assert "demo-every-minute" in stranger.shell(line)
    # a schedule in English
    body = {
        "schedule_id": "hello",
        "name": "Hello",
        "text": "every 2 seconds",
        "action": {"kind": "http", "url": f"{stranger.address}/demo/bell"},
    }
    made = stranger.ask("/api/v1/schedules", body)
    assert (made["type"], made["spec"], made["enabled"]) == ("interval", "2", True)
    # it fires
    runs = stranger.eventually(lambda: stranger.ask("/api/v1/schedules/hello/runs")["items"])
    assert runs[0]["state"] == "succeeded", runs
    # its history
    run = stranger.ask(f"/api/v1/runs/{quote(runs[0]['run_id'], safe='')}")
    assert run["attempts"] == 1
    assert "dong" in json.dumps(run)
    occurrences = stranger.ask("/api/v1/schedules/hello/occurrences")["items"]
    assert occurrences[0]["verdict"] == "fired"
    # why
    answer = stranger.ask(f"/api/v1/schedules/hello/why?at={quote(runs[0]['scheduled_for'])}")
    assert "succeeded" in answer["text"]
    assert answer["facts"]["schedule_id"] == "hello"
    assert stranger.ask("/api/v1/schedules/hello/verify")["whole"] is True
    # and the pages that everybody may see, with all that they load
    kind, login = stranger.page("/login")
    assert kind.startswith("text/html")
    loaded = re.findall(r'(?:href|src)="(/[^"]+\.(?:css|js|svg)[^"]*)"', login.decode())
    assert loaded
    for path in loaded:
        kind, content = stranger.page(path)
        assert content, path
        assert not kind.startswith("text/html"), path
    assert stranger.stop() == 0
    assert "Traceback" not in stranger.log


def test_the_first_five_minutes(start: Callable[..., Stranger], tmp_path: Path) -> None:
    stranger = start("--demo")
    assert f"Noonbell {__version__}" in stranger.said
    lived_through(stranger)
    # the database stays where the person was, and is whole
    assert (tmp_path / "noonbell.db").exists()
    assert "whole" in stranger.shell("noonbell verify --store sqlite:///noonbell.db")
    assert "Hello" in stranger.shell("noonbell why Hello --store sqlite:///noonbell.db")


@pytest.mark.exhaustive
async def test_the_same_on_postgresql(start: Callable[..., Stranger], postgres: PostgresServer) -> None:
    """An empty database: the migrations come out of the wheel."""
    dsn = await postgres.new_database()
    lived_through(start("--demo", "--store", dsn))
    # a second start finds everything in its place
    again = start("--demo", "--store", dsn)
    assert len(again.ask("/api/v1/schedules/hello/runs")["items"]) >= 1
    assert again.stop() == 0
    assert "not-a-secret" not in again.said + again.log


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path, installed: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = ROOT / "src" / "noonbell"
    there = {
        f"noonbell/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == there
    kinds = {Path(name).suffix for name in inside}
    assert {".html", ".css", ".js", ".sql", ".typed"} <= kinds
    # what is imported is what was installed
    told = subprocess.run(
        [installed / "python", "-c", "import noonbell; print(noonbell.__file__)"],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert Path(told.stdout.strip()).is_relative_to(installed.parent)
