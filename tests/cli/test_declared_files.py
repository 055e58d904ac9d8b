"""`noonbell plan`, `apply` and `import` on files: what they print, ask and write, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from noonbell import Schedules
from noonbell.cli import program
from noonbell.ledger.ledger_rows import schedule_rows
from noonbell.schedules import Call
from noonbell.store.opening import open_store
from noonbell.timing.timing_protocol import SECOND
from tests.patience import PATIENCE_SECONDS
from tests.store.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 11, 15, 12, 0, 30, tzinfo=UTC)
FIRST = """
name = "billing"
[defaults]
timezone = "America/New_York"
action = { kind = "callback", name = "work" }
[schedules.sync]
cron = "30 2 * * *"
name = "The nightly sync"
[schedules.poll]
every = "15m"
"""
SECOND_FILE = FIRST.replace("30 2", "30 3").partition("[schedules.poll]")[0]


def run(*arguments: str, now: datetime = NOW, **more: Any) -> Result:
    return CliRunner().invoke(program, list(arguments), obj=now, **more)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "schedules.toml"
    path.write_text(FIRST, encoding="utf-8")
    return path


@pytest.fixture
def db(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture
def made(file: Path, db: str) -> str:
    """A store to which the first file was applied."""
    assert run("apply", str(file), "--store", db, "--create", "--yes").exit_code == 0
    return db


def schedules_of(db: str) -> dict[str, str]:
    async def ask() -> dict[str, str]:
        async with Schedules(db) as schedules:
            return {one.schedule_id: one.spec for one in (await schedules.list()).items}

    return asyncio.run(ask())


def audit_of(db: str) -> list[tuple[str, str]]:
    async def ask() -> list[tuple[str, str]]:
        async with Schedules(db) as schedules:
            return [(one.event, one.actor) for one in (await schedules.audit()).items]

    return asyncio.run(ask())


def test_a_plan_in_words(file: Path, made: str) -> None:
    file.write_text(SECOND_FILE, encoding="utf-8")
    found = run("plan", str(file), "--store", made)
    assert found.exit_code == 0
    assert found.stdout == (
        f"{file} (file:billing) against {made}\n"
        "\n"
        "~ sync  The nightly sync\n"
        '    cron: "30 2 * * *" → "30 3 * * *"\n'
        "    · 02:30 becomes 03:30 New York\n"
        "    · next fire Mon 16 Nov 03:30 New York instead of Mon 16 Nov 02:30\n"
        "    · on Sun 14 Mar 2027, when the clocks go forward in New York: 03:30 New York comes in addition\n"
        "\n"
        "- poll\n"
        "    · 96 fires a day fewer\n"
        "    · the next would have been Sun 15 Nov 07:15:30 New York\n"
        "\n"
        "0 to create, 1 to change, 1 to delete, 0 unchanged\n"
    )
    assert schedules_of(made) == {"sync": "30 2 * * *", "poll": "900"}


def test_check_tells_by_its_exit_status(file: Path, made: str) -> None:
    assert run("plan", str(file), "--store", made, "--check").exit_code == 0
    assert run("apply", str(file), "--store", made, "--check").exit_code == 0
    file.write_text(SECOND_FILE, encoding="utf-8")
    assert run("plan", str(file), "--store", made, "--check").exit_code == 2
    assert run("apply", str(file), "--store", made, "--check", "--yes", "--allow-delete").exit_code == 2
    assert schedules_of(made) == {"sync": "30 2 * * *", "poll": "900"}
    file.write_text("schedules = 5\n", encoding="utf-8")
    assert run("plan", str(file), "--store", made, "--check").exit_code == 1
    assert run("plan", str(file), "--store", made, "--chekc").exit_code == 1
    assert run("plan", "--store", made).exit_code == 1


def test_apply_does_what_was_planned_and_says_who_did_it(file: Path, made: str) -> None:
    file.write_text(SECOND_FILE, encoding="utf-8")
    refused = run("apply", str(file), "--store", made, "--yes")
    assert refused.exit_code == 1
    assert "The plan deletes poll; nothing was applied\n  Pass --allow-delete to delete them" in refused.stderr
    assert schedules_of(made) == {"sync": "30 2 * * *", "poll": "900"}
    done = run("apply", str(file), "--store", made, "--yes", "--allow-delete", "--actor", "deploy")
    assert done.exit_code == 0
    assert done.stdout.endswith("Applied.\n")
    assert schedules_of(made) == {"sync": "30 3 * * *"}
    assert audit_of(made)[2:] == [("schedule.updated", "deploy"), ("schedule.deleted", "deploy")]
    again = run("apply", str(file), "--store", made, "--yes")
    assert again.exit_code == 0
    assert "Nothing to change: 1 as declared" in again.stdout


def test_without_a_terminal_nobody_is_asked(file: Path, made: str) -> None:
    file.write_text(FIRST.replace("15m", "20m"), encoding="utf-8")
    found = run("apply", str(file), "--store", made, input="y\n")
    assert found.exit_code == 1
    assert "Not a terminal; nothing was applied\n  Pass --yes" in found.stderr
    assert schedules_of(made)["poll"] == "900"


def on_a_terminal(answers: str, *arguments: str, columns: int = 80) -> tuple[str, int]:
    """What a person sees who gives these answers, and the exit status."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "noonbell", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={"PATH": os.environ["PATH"], "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(columns)},
    )
    os.close(theirs)
    os.write(ours, answers.encode())
    written = b""
    try:
        while chunk := os.read(ours, 65536):
            written += chunk
    except OSError:  # Linux says EIO where the other end is closed
        pass
    finally:
        os.close(ours)
    return written.decode().replace("\r\n", "\n"), process.wait(PATIENCE_SECONDS)


def test_on_a_terminal_deletions_are_named_and_asked_for(file: Path, made: str) -> None:
    file.write_text(SECOND_FILE, encoding="utf-8")
    told, status = on_a_terminal("n\n", "apply", str(file), "--store", made)
    assert status == 1
    assert "Delete poll? [y/N]:" in told
    assert "Nothing was applied." in told
    told, status = on_a_terminal("y\nn\n", "apply", str(file), "--store", made)
    assert status == 1
    assert "Apply? [y/N]:" in told
    assert schedules_of(made) == {"sync": "30 2 * * *", "poll": "900"}
    told, status = on_a_terminal("y\ny\n", "apply", str(file), "--store", made)
    assert status == 0
    assert told.endswith("Applied.\n")
    assert schedules_of(made) == {"sync": "30 3 * * *"}


def test_on_a_terminal_long_lines_go_on_below_with_their_indent(file: Path, made: str) -> None:
    file.write_text(FIRST.replace("30 2", "30 3"), encoding="utf-8")
    narrow, _ = on_a_terminal("", "plan", str(file), "--store", made, columns=60)
    body = [line.rstrip() for line in narrow.split("\n") if "against" not in line]
    assert all(len(line) <= 60 for line in body), body
    start = next(number for number, line in enumerate(body) if "when the clocks go" in line)
    assert body[start + 1].startswith("    ")
    wide, _ = on_a_terminal("", "plan", str(file), "--store", made, columns=120)
    assert "when the clocks go forward in New York: 03:30 New York comes in addition" in wide


def test_json(file: Path, made: str) -> None:
    file.write_text(SECOND_FILE, encoding="utf-8")
    data = json.loads(run("plan", str(file), "--store", made, "--json").stdout)
    assert (data["managed_by"], data["created"], data["changed"], data["deleted"]) == ("file:billing", 0, 1, 1)
    change, deletion = data["schedules"]
    assert change["changes"] == [{"field": "cron", "before": "30 2 * * *", "after": "30 3 * * *"}]
    assert change["words"][0] == "02:30 becomes 03:30 New York"
    assert (deletion["kind"], deletion["id"]) == ("delete", "poll")
    unasked = run("apply", str(file), "--store", made, "--json", "--allow-delete")
    assert unasked.exit_code == 1
    assert json.loads(unasked.stdout)["error"]["message"] == "Not a terminal; nothing was applied"
    done = json.loads(run("apply", str(file), "--store", made, "--json", "--allow-delete", "--yes").stdout)
    assert done["applied"]
    assert done["fingerprint"] == data["fingerprint"]
    file.write_text("[schedules.x]\nevery = 0\n", encoding="utf-8")
    wrong = run("plan", str(file), "--store", made, "--json")
    assert wrong.exit_code == 1
    problems = json.loads(wrong.stdout)["error"]["problems"]
    assert [(one["line"], one["column"], one["field"]) for one in problems] == [
        (1, 12, "schedules.x.action"),
        (2, 9, "schedules.x.every"),
    ]


def test_problems_are_told_all_at_once(file: Path, db: str) -> None:
    file.write_text('name = "x"\n[schedules.a]\ncron = "61 * * * *"\ncolour = 1\n', encoding="utf-8")
    found = run("apply", str(file), "--store", db, "--create", "--yes")
    assert found.exit_code == 1
    assert found.stderr.startswith("Error: 3 problems; nothing was applied\n")
    assert f"  {file}:3:8: schedules.a.cron '61 * * * *'" in found.stderr
    assert f"  {file}:4:1: schedules.a.colour is not a key of a schedule" in found.stderr
    assert not Path(db.removeprefix("sqlite:///")).exists()


def test_stores_and_files_that_are_not_there(file: Path, db: str, tmp_path: Path) -> None:
    found = run("plan", str(file), "--store", db)
    assert found.exit_code == 1
    assert "nothing was created" in found.stderr
    assert not Path(db.removeprefix("sqlite:///")).exists()
    assert run("apply", str(file), "--store", db, "--yes").exit_code == 1
    missing = run("plan", str(tmp_path / "none.toml"), "--store", db)
    assert missing.exit_code == 1
    assert "none.toml cannot be read: No such file or directory" in missing.stderr
    assert run("plan", str(file)).exit_code == 1  # no store is named


def test_stdin_and_the_environment(made: str) -> None:
    found = run("plan", "-", "--format", "toml", "--check", input=FIRST, env={"NOONBELL_STORE": made})
    assert found.exit_code == 0, found.output
    assert run("plan", "-", "--store", made, input=FIRST).exit_code == 1
    yaml = "name: billing\nschedules:\n  sync: {every: 60, action: {kind: callback, name: x}}\n"
    found = run("plan", "-", "--format", "yaml", "--store", made, input=yaml)
    assert "schedules.sync.every 'interval' cannot be changed from cron" in found.stderr


def test_an_engine_in_another_process_takes_up_what_was_applied(tmp_path: Path, db: str) -> None:
    """The file is applied by a process of its own while an engine runs here."""
    path = tmp_path / "live.yaml"
    path.write_text("schedules: {tick: {every: 1, action: {kind: callback, name: work}}}\n", encoding="utf-8")

    async def live() -> str:
        called: asyncio.Queue[str] = asyncio.Queue()

        async def work(call: Call) -> None:
            called.put_nowait(call.name)

        engine = Schedules(db, callbacks={"work": work}, longest_wait=timedelta(seconds=0.2))
        async with engine:
            await engine.start()
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "noonbell", "apply", str(path), "--store", db, "--yes",
                stdout=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            assert await process.wait() == 0
            return await asyncio.wait_for(called.get(), PATIENCE_SECONDS)

    assert asyncio.run(live()) == "tick"


def test_on_postgresql(file: Path, postgres: PostgresServer) -> None:
    dsn = asyncio.run(postgres.new_schema())
    missing = run("plan", str(file), "--store", dsn)
    assert missing.exit_code == 1
    assert "nothing was created" in missing.stderr
    assert run("apply", str(file), "--store", dsn, "--create", "--yes").exit_code == 0
    assert run("plan", str(file), "--store", dsn, "--check").exit_code == 0
    assert schedules_of(dsn) == {"sync": "30 2 * * *", "poll": "900"}


def test_the_example_is_applied(db: str) -> None:
    example = str(ROOT / "examples" / "schedules.toml")
    found = run("apply", example, "--store", db, "--create", "--yes")
    assert found.exit_code == 0, found.output
    assert "3 to create" in found.stdout
    assert run("plan", example, "--store", db, "--check").exit_code == 0
    assert schedules_of(db)["morning-report"] == "45 8 * * 1-5"


# --- import -----------------------------------------------------------------------------------------------------------

CRONTAB = """MAILTO=ops@example.org
# The nightly backup
15 3 * * * /usr/local/bin/backup --full
@reboot /bin/early
*/10 * * * mon-fri curl -fsS https://example.org/ping
"""


def test_a_crontab_goes_round(tmp_path: Path, db: str) -> None:
    crontab, out = tmp_path / "crontab", tmp_path / "jobs.toml"
    crontab.write_text(CRONTAB, encoding="utf-8")
    found = run("import", "crontab", str(crontab), "--tz", "Europe/Kyiv", "-o", str(out))
    assert found.exit_code == 1
    assert found.stdout == ""
    assert found.stderr == (
        "note: line 1: MAILTO is not translated: the output stays with the run; use notifications to inform people\n"
        "not translated: line 4: is @reboot, which names an event and not a time\n"
        "    @reboot /bin/early\n"
        "2 lines translated, 1 not\n"
    )
    applied = run("apply", str(out), "--store", db, "--create", "--yes")
    assert applied.exit_code == 0, applied.output
    assert "+ backup  The nightly backup" in applied.stdout
    assert "144 fires" not in applied.stdout
    assert schedules_of(db) == {"backup": "15 3 * * *", "curl": "0,10,20,30,40,50 * * * 1-5"}
    assert run("plan", str(out), "--store", db, "--check").exit_code == 0
    again = run("import", "crontab", str(crontab), "-o", str(out))
    assert again.exit_code == 2
    assert "already exists; nothing was written" in again.stderr


def test_a_crontab_from_stdin_to_stdout() -> None:
    found = run(
        "import", "crontab", "-", "--tz", "UTC", "--user-field", input="17 * * * * root run-parts /etc/cron.hourly\n"
    )
    assert found.exit_code == 0, found.output
    assert '[schedules.run-parts.action]\nkind = "command"\nshell = true\n' in found.stdout
    assert 'name = "crontab"\n' in found.stdout
    assert run("import", "crontab", "nowhere").exit_code == 2


def test_the_ledger_of_an_applied_file_is_whole(made: str) -> None:
    found = run("verify", "--db", made)
    assert found.exit_code == 0, found.output

    async def epochs() -> list[int]:
        store = open_store(made)
        await store.open()
        try:
            rows = await schedule_rows(store, "file:billing")
            return [(await store.history.epochs(row["sid"]))[0].from_at for row in rows]
        finally:
            await store.close()

    begun = asyncio.run(epochs())
    assert len(begun) == 2
    assert all(0 <= at - int(NOW.timestamp()) * SECOND < 60 * SECOND for at in begun)
