"""Commands, with real programs: how they are described, what they are given, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from noonbell.actions import process
from noonbell.actions.command import Commands, check_command, prepare_command
from noonbell.actions.process import Output, Program, run
from noonbell.actions.results import Finished
from noonbell.core.attempt_detail import unpack
from noonbell.errors import CommandFailedError, CommandsOffError, ScheduleInvalidError
from tests.actions.conftest import MIDNIGHT, start_at, stored_with
from tests.patience import PATIENCE_SECONDS, until

ENV = {"PATH": os.environ["PATH"]}


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *arguments)


async def detail_of(*argv: str, **options: Any) -> dict[str, Any]:
    return unpack(await run(Program(argv, **{"env": ENV, **options})))


async def failure_of(*argv: str, **options: Any) -> tuple[CommandFailedError, dict[str, Any]]:
    with pytest.raises(CommandFailedError) as failed:
        await run(Program(argv, **{"env": ENV, **options}))
    return failed.value, unpack(failed.value.detail)


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and waits for its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


async def gone(pid: int) -> bool:
    """Return when the process has ended."""
    await until(lambda: not is_alive(pid))
    return True


def open_files() -> set[str]:
    return {f"{entry.name} {entry.readlink()}" for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}


@pytest.fixture(autouse=True, scope="module")
def uvloop_has_run_before() -> None:
    """The first program that uvloop starts opens a pipe for signals, which stays for the life of the process."""
    uvloop.run(detail_of("true"))


@pytest.fixture(autouse=True)
async def nothing_is_left_open() -> AsyncIterator[None]:
    before = open_files()
    yield
    try:
        await until(lambda: len(open_files()) <= len(before))
    except TimeoutError:
        assert open_files() == before


async def test_a_program_that_ends_well() -> None:
    detail = await detail_of(*python("import sys; print('out'); print('err', file=sys.stderr)"))
    assert detail == {
        "exit_code": 0,
        "signal": None,
        "timed_out": False,
        "stdout": "out\n",
        "stderr": "err\n",
        "stdout_cut": 0,
        "stderr_cut": 0,
    }


async def test_an_exit_code_is_a_failure_with_its_output() -> None:
    error, detail = await failure_of(*python("print('so far'); raise SystemExit(3)"))
    assert "exit code 3" in str(error)
    assert (detail["exit_code"], detail["stdout"]) == (3, "so far\n")


async def test_a_signal_is_a_failure() -> None:
    error, detail = await failure_of(*python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    assert "SIGKILL" in str(error)
    assert (detail["exit_code"], detail["signal"], detail["timed_out"]) == (None, "SIGKILL", False)


@pytest.mark.parametrize("argv", [("no-such-program-anywhere",), ("/",)])
async def test_what_cannot_be_started_says_so(argv: tuple[str, ...]) -> None:
    error, detail = await failure_of(*argv)
    assert "could not be started" in str(error)
    assert "could not be started" in detail["error"]


async def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    error, _ = await failure_of(*python("pass"), cwd=str(tmp_path / "missing"))
    assert "missing" in str(error)


async def test_input_folder_and_environment_are_given(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.stdin.read(), os.getcwd(), sorted(os.environ.items()))"
    detail = await detail_of(*python(code), stdin="hällo", cwd=str(tmp_path), env={"ONLY": "this"})
    said, folder, rest = detail["stdout"].split(" ", 2)
    assert (said, folder) == ("hällo", str(tmp_path))
    # the interpreter may add what it needs for its own encoding
    assert [pair for pair in eval(rest) if pair[0] != "LC_CTYPE"] == [("ONLY", "this")]  # noqa: S307 - it was printed here


async def test_a_program_that_does_not_read_its_input_ends_well() -> None:
    detail = await detail_of(*python("pass"), stdin="x" * 1_000_000)
    assert detail["exit_code"] == 0


async def test_without_input_there_is_none() -> None:
    detail = await detail_of(*python("import sys; print(repr(sys.stdin.read()))"))
    assert detail["stdout"] == "''\n"


async def test_of_much_output_the_ends_are_kept() -> None:
    code = "import sys; sys.stdout.write('a' * 10 + 'x' * 5_000_000 + 'b' * 10); sys.stderr.write('e' * 7)"
    detail = await detail_of(*python(code), max_output=20)
    assert detail["stdout"] == f"{'a' * 10}\n[... 5000000 bytes cut ...]\n{'b' * 10}"
    assert (detail["stdout_cut"], detail["stderr_cut"], detail["stderr"]) == (5_000_000, 0, "e" * 7)


async def test_bytes_that_are_no_text_are_shown() -> None:
    detail = await detail_of(*python(r"import os; os.write(1, b'\xff\x00\xc3\xbc')"))
    assert detail["stdout"] == "\\xff\x00ü"


@pytest.mark.parametrize("limit", [0, 1, 2, 7, 20, 21, 100])
@pytest.mark.parametrize("sizes", [(), (20,), (1,) * 20, (7, 0, 13), (3, 17)])
def test_first_and_last_bytes_whatever_the_pieces(limit: int, sizes: tuple[int, ...]) -> None:
    whole = b"abcdefghijklmnopqrst"[: sum(sizes)]
    output, at = Output(limit), 0
    for size in sizes:
        output.add(whole[at : at + size])
        at += size
    if len(whole) <= limit:
        assert output.shown() == (whole.decode(), 0)
    else:
        first, last = whole[: limit - limit // 2], whole[len(whole) - limit // 2 :]
        cut = len(whole) - limit
        assert output.shown() == (f"{first.decode()}\n[... {cut} bytes cut ...]\n{last.decode()}", cut)


# --- the end ----------------------------------------------------------------------------------------------------------

# A parent that says the pid of a child, both deaf to SIGTERM, and stays or goes. A shell, since it is up in no time.
FAMILY = """
trap '' TERM
if [ "$1" = quiet ]; then sleep 3600 > /dev/null 2>&1 & else sleep 3600 & fi
echo $! > "$2"
mv "$2" "$2.done"
if [ "$3" = stay ]; then wait; fi
"""


def family(output: str, path: Path, then: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", FAMILY, "family", output, str(path), then)


async def told_pid(path: Path) -> int:
    done = path.with_name(path.name + ".done")
    await until(done.exists)
    return int(done.read_text())


LONG = 3600


@pytest.fixture
def soon_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The time of a program is over when it has told its pid, however long a busy machine takes to get it there."""
    within = process._within

    async def over(event: asyncio.Future[None], seconds: float) -> bool:
        if seconds != LONG:
            return await within(event, seconds)
        await told_pid(tmp_path / "pid")
        return event.done()

    monkeypatch.setattr(process, "_within", over)


@pytest.fixture
def under_way(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a program was started and is waited for; it may have told its pid before that."""
    found = asyncio.Event()
    within = process._within

    async def noted(event: asyncio.Future[None], seconds: float) -> bool:
        if seconds == LONG:
            found.set()
        return await within(event, seconds)

    monkeypatch.setattr(process, "_within", noted)
    return found


@pytest.mark.usefixtures("soon_over")
@pytest.mark.parametrize("output", ["quiet", "open"])
async def test_time_over_ends_the_whole_group_even_if_it_does_not_listen(tmp_path: Path, output: str) -> None:
    argv = family(output, tmp_path / "pid", "stay")
    error, detail = await failure_of(*argv, timeout_seconds=LONG, grace_seconds=0.2)
    assert f"took longer than {LONG} s" in str(error)
    assert (detail["timed_out"], detail["signal"]) == (True, "SIGKILL")
    assert await gone(await told_pid(tmp_path / "pid"))


@pytest.mark.usefixtures("soon_over")
async def test_a_program_that_listens_has_its_grace(tmp_path: Path) -> None:
    # The signal is blocked before the pid is announced, so it cannot arrive too early; no child is there to miss it.
    code = (
        "import os, pathlib, signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "print('up', flush=True)\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "path.write_text(str(os.getpid()))\n"
        "path.rename(f'{path}.done')\n"
        "signal.sigwait([signal.SIGTERM])\n"
        "print('cleaned')"
    )
    argv = python(code, str(tmp_path / "pid"))
    _, detail = await failure_of(*argv, timeout_seconds=LONG, grace_seconds=PATIENCE_SECONDS)
    assert detail["stdout"] == "up\ncleaned\n"
    assert (detail["timed_out"], detail["exit_code"]) == (True, 0)


@pytest.mark.parametrize("output", ["quiet", "open"])
async def test_what_a_program_leaves_behind_is_ended_with_it(tmp_path: Path, output: str) -> None:
    detail = await detail_of(*family(output, tmp_path / "pid", "go"), timeout_seconds=PATIENCE_SECONDS)
    assert detail["exit_code"] == 0
    assert await gone(await told_pid(tmp_path / "pid"))


async def test_one_who_left_the_group_on_purpose_does_not_hold_up_the_end(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'], start_new_session=True)\n"
        "print(child.pid, flush=True)"
    )
    detail = await detail_of(*python(code), timeout_seconds=PATIENCE_SECONDS)
    pid = int(detail["stdout"])
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)


async def test_cancelling_ends_the_whole_group(tmp_path: Path, under_way: asyncio.Event) -> None:
    argv = family("open", tmp_path / "pid", "stay")
    task = asyncio.ensure_future(run(Program(argv, ENV, timeout_seconds=LONG, grace_seconds=0.1)))
    pid = await told_pid(tmp_path / "pid")
    await under_way.wait()
    assert is_alive(pid)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(pid)


async def test_cancelling_while_it_starts_ends_the_whole_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    really, go_on = loop.subprocess_exec, asyncio.Event()

    leaders: list[asyncio.SubprocessTransport] = []

    async def slowly(*given: Any, **options: Any) -> Any:
        started = await really(*given, **options)
        leaders.append(started[0])
        await go_on.wait()
        return started

    monkeypatch.setattr(loop, "subprocess_exec", slowly)
    argv = family("open", tmp_path / "pid", "stay")
    task = asyncio.ensure_future(run(Program(argv, ENV, timeout_seconds=LONG, grace_seconds=0.1)))
    pid = await told_pid(tmp_path / "pid")
    task.cancel()
    await asyncio.sleep(0)
    assert is_alive(pid)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert leaders[0].get_returncode() == -signal.SIGKILL  # it was waited for, so nobody else finds it running
    assert await gone(pid)


async def test_a_cancelled_program_has_its_grace_too(tmp_path: Path, under_way: asyncio.Event) -> None:
    trap = f"trap 'echo cleaned > {tmp_path}/end; exit 0' TERM"
    listening = f"{trap}; echo $$ > {tmp_path}/pid; mv {tmp_path}/pid {tmp_path}/pid.done; sleep 3600 & wait"
    program = Program(("/bin/sh", "-c", listening), ENV, timeout_seconds=LONG, grace_seconds=PATIENCE_SECONDS)
    task = asyncio.ensure_future(run(program))
    await told_pid(tmp_path / "pid")
    await under_way.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "end").read_text() == "cleaned\n"


async def test_no_zombie_is_left() -> None:
    await asyncio.gather(*(detail_of(*python("pass")) for _ in range(5)))
    assert all(map(is_alive, children()))


@pytest.mark.parametrize("case", [test_a_program_that_ends_well, test_an_exit_code_is_a_failure_with_its_output])
def test_it_works_on_uvloop(case: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(case())


@pytest.mark.usefixtures("soon_over")
def test_the_group_ends_on_uvloop_too(tmp_path: Path) -> None:
    uvloop.run(test_time_over_ends_the_whole_group_even_if_it_does_not_listen(tmp_path, "open"))


async def test_time_is_over_by_a_real_timer() -> None:
    error, detail = await failure_of("/bin/sleep", "3600", timeout_seconds=0.2)
    assert "took longer than 0.2 s" in str(error)
    assert (detail["timed_out"], detail["signal"]) == (True, "SIGTERM")


def test_time_is_over_by_a_real_timer_on_uvloop() -> None:
    uvloop.run(test_time_is_over_by_a_real_timer())


# --- the description --------------------------------------------------------------------------------------------------


def test_a_command_is_stored_without_its_defaults() -> None:
    action = {
        "kind": "command", "argv": ["backup", "--full", ""], "shell": False, "cwd": None, "env": {}, "stdin": None,
        "timeout_seconds": 3600, "max_output": 65536,
    }  # fmt: skip
    assert check_command(action) == {"kind": "command", "argv": ["backup", "--full", ""]}
    full = {
        "kind": "command", "shell": True, "command": "a | b", "cwd": "/srv", "env": {"A": "b=c"}, "stdin": "x",
        "timeout_seconds": 0.5, "max_output": 0,
    }  # fmt: skip
    assert check_command(full) == full


@pytest.mark.parametrize(
    ("action", "field"),
    [
        ({}, "action.argv"),
        ({"argv": "backup --full"}, "action.argv"),
        ({"argv": []}, "action.argv"),
        ({"argv": [""]}, "action.argv[0]"),
        ({"argv": ["a", "b", 3]}, "action.argv[2]"),
        ({"argv": ["a", "b\0"]}, "action.argv[1]"),
        ({"argv": ["a"] * 1001}, "action.argv"),
        ({"argv": ["a"], "shell": 1}, "action.shell"),
        ({"argv": ["a"], "command": "a"}, "action.command"),
        ({"argv": ["a"], "shell": True}, "action.argv"),
        ({"shell": True}, "action.command"),
        ({"argv": ["a"], "cwd": "here"}, "action.cwd"),
        ({"argv": ["a"], "env": ["A"]}, "action.env"),
        ({"argv": ["a"], "env": {"A=B": "x"}}, "action.env.A=B"),
        ({"argv": ["a"], "env": {"A": 1}}, "action.env.A"),
        ({"argv": ["a"], "env": {"NOONBELL_RUN_ID": "x"}}, "action.env.NOONBELL_RUN_ID"),
        ({"argv": ["a"], "timeout_seconds": 0}, "action.timeout_seconds"),
        ({"argv": ["a"], "timeout_seconds": None}, "action.timeout_seconds"),
        ({"argv": ["a"], "timeout_seconds": float("nan")}, "action.timeout_seconds"),
        ({"argv": ["a"], "max_output": -1}, "action.max_output"),
        ({"argv": ["a"], "max_output": True}, "action.max_output"),
        ({"argv": ["a"], "stdin": b"x"}, "action.stdin"),
        ({"argv": ["a"], "timeout": 5}, "action.timeout"),
    ],
)
def test_what_is_no_command_is_refused_by_its_field(action: dict[str, Any], field: str) -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        check_command({"kind": "command", **action})
    assert refused.value.field == field


async def test_a_run_is_given_a_clean_environment_and_its_own_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_ENGINE", "x")
    monkeypatch.setenv("HOME", "/home/engine")
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    action = check_command({"kind": "command", "argv": python(code), "env": {"LANG": "C.UTF-8", "LEVEL": "9"}})
    prepared = prepare_command(Commands(allowed=True), action, stored_with(action), start_at(attempt=2))
    assert prepared.is_async
    finished = await prepared.call()
    assert isinstance(finished, Finished)
    env = msgspec.json.decode(unpack(finished.detail or b"")["stdout"])
    assert "SECRET_OF_THE_ENGINE" not in env
    assert (env["HOME"], env["LANG"], env["LEVEL"], env["PATH"]) == ("/home/engine", "C.UTF-8", "9", os.environ["PATH"])
    assert {name: value for name, value in env.items() if name.startswith("NOONBELL_")} == {
        "NOONBELL_RUN_ID": f"abc:scheduled:{MIDNIGHT}",
        "NOONBELL_SCHEDULE_ID": "abc",
        "NOONBELL_SCHEDULE_NAME": "morning",
        "NOONBELL_SCHEDULED_FOR": "2024-01-01T00:00:00+00:00",
        "NOONBELL_ATTEMPT": "2",
    }


async def test_a_shell_is_used_where_it_is_asked_for_and_only_there() -> None:
    shell = check_command({"kind": "command", "shell": True, "command": "echo $NOONBELL_ATTEMPT | tr 1 x"})
    finished = await prepare_command(Commands(allowed=True), shell, stored_with(shell), start_at()).call()
    assert unpack(finished.detail)["stdout"] == "x\n"
    plain = check_command({"kind": "command", "argv": ["echo", "$HOME; ls | cat"]})
    finished = await prepare_command(Commands(allowed=True), plain, stored_with(plain), start_at()).call()
    assert unpack(finished.detail)["stdout"] == "$HOME; ls | cat\n"


@pytest.mark.parametrize(
    ("allowed", "action", "reason"),
    [
        (False, {"argv": ["backup"]}, "commands=.programs"),
        ([], {"argv": ["backup"]}, "commands=.programs"),
        (["backup"], {"argv": ["/usr/bin/backup"]}, "allows backup"),
        (["backup"], {"shell": True, "command": "backup"}, "allows backup"),
        (["backup"], {"argv": ["backup"], "env": {"PATH": "/elsewhere"}}, "sets PATH"),
        (["backup"], {"argv": ["backup"], "env": {"Ld_Preload": "x.so"}}, "sets Ld_Preload"),
        (["backup"], {"argv": ["backup"], "env": {"BASH_FUNC_echo%%": "() { id; }"}}, "may set no variables"),
        (["backup"], {"argv": ["backup"], "env": {"BASH_ENV": "/x"}}, "--command backup:BASH_ENV allows it"),
        (["backup:LEVEL"], {"argv": ["backup"], "env": {"LEVEL": "9", "GCONV_PATH": "/x"}}, "set only LEVEL"),
        (["backup:LEVEL", "sync"], {"argv": ["sync"], "env": {"LEVEL": "9"}}, "sets LEVEL"),
    ],
)
def test_what_the_operator_does_not_allow_is_refused(allowed: Any, action: dict[str, Any], reason: str) -> None:
    checked = check_command({"kind": "command", **action})
    with pytest.raises(CommandsOffError, match=reason):
        prepare_command(Commands(allowed), checked, stored_with(checked), start_at())


@pytest.mark.parametrize(
    ("allowed", "action"),
    [
        (True, {"argv": ["anything"], "env": {"PATH": "/elsewhere"}}),
        (["backup"], {"argv": ["backup", "-x"]}),
        (["backup:LEVEL:MODE"], {"argv": ["backup", "-x"], "env": {"LEVEL": "9", "MODE": "full"}}),
        (["backup:LEVEL", "backup:MODE"], {"argv": ["backup", "-x"], "env": {"LEVEL": "9", "MODE": "full"}}),
        (["/srv/a:b/backup:LEVEL"], {"argv": ["/srv/a:b/backup"], "env": {"LEVEL": "9"}}),
        (["/bin/sh"], {"shell": True, "command": "backup"}),
    ],
)
def test_what_the_operator_allows_is_prepared(allowed: Any, action: dict[str, Any]) -> None:
    checked = check_command({"kind": "command", **action})
    assert prepare_command(Commands(allowed), checked, stored_with(checked), start_at()).is_async


@pytest.mark.parametrize("allowed", ["backup", ["./backup"], [""]])
def test_a_list_of_programs_must_be_one(allowed: Any) -> None:
    with pytest.raises(ScheduleInvalidError):
        Commands(allowed)
