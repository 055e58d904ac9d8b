"""Run the tests against each mutant: `python -m tests.mutants.run [id…]`.

Every worker has a copy of the package and changes that; the working tree stays as it is. The tests that cover the
changed file run in stages, the nearest first, until one fails. That test then has to pass on the unchanged code: a test
that always fails, or fails now and then, has caught nothing.

The exit status is 1 if a mutant survives without an explanation, if one that is explained as equivalent is caught after
all, or if one no longer applies to the code.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tests.mutants.mutant import PACKAGE, ROOT, Mutant, StaleMutantError, load

Outcome = Literal["caught", "timed out", "survived", "equivalent", "stale", "unreliable"]
Stage = tuple[str, ...]

# A test that has printed nothing for this long is taken to hang.
SILENCE_S: Final = 100.0
_GRACE_S: Final = 20.0
_RESULTS: Final = "## Results\n"

_CRON: Final[Stage] = (
    "tests/cron/test_expression.py",
    "tests/cron/test_dialects.py",
    "tests/cron/test_calendar_ends.py",
    "tests/cron/test_against_oracle.py",
)
# What a store has no part in is the same on each: those on PostgreSQL take the most time.
_WITHOUT_POSTGRES: Final = "-knot postgres"
_STORES: Final[Stage] = ("tests/store/test_memory.py", "tests/store/test_sqlite.py", "tests/store/test_differential.py")
_SQLITE: Final[Stage] = (
    "tests/store/test_sqlite_file.py",
    "tests/store/test_damage.py",
    "tests/store/test_sqlite_history.py",
    "tests/store/test_sqlite_lists.py",
)
_POSTGRES: Final[Stage] = (
    "tests/store/test_postgres.py",
    "tests/store/test_postgres_durable.py",
    "tests/store/test_postgres_rescue.py",
    "tests/store/test_postgres_slots.py",
    "tests/store/test_postgres_trouble.py",
)
_SCHEDULES: Final[Stage] = (
    _WITHOUT_POSTGRES,
    "tests/schedules/test_message_runs.py",
    "tests/schedules/test_bursts.py",
    "tests/schedules/test_room.py",
    "tests/schedules/test_crash_quarantine.py",
    "tests/schedules/test_schedules.py",
    "tests/schedules/test_behaviour.py",
    "tests/schedules/test_against_oracle.py",
)
_DECLARED: Final[Stage] = ("tests/declarative", "tests/periodic", "tests/conformance")
_ALL_SCHEDULES: Final[Stage] = (
    _WITHOUT_POSTGRES,
    "tests/schedules",
    "tests/actions/test_through_schedules.py",
    "tests/actions/test_delivery.py",
)
_AROUND: Final[Stage] = (_WITHOUT_POSTGRES, "tests/notify", "tests/timeline", "tests/simulation", "tests/ledger")

# The stages for a file: the first pattern that matches. Each stage is one run of pytest, on the given paths.
COVERING: Final[dict[str, tuple[Stage, ...]]] = {
    "cron/*": (_CRON, ("tests/cron",), ("tests/conformance", "tests/timing", "tests/language")),
    "core/consuming.py": (("tests/core",), ("tests/conformance", "tests/declarative", "tests/periodic"), _STORES),
    "core/*": (("tests/core",), _SCHEDULES, _ALL_SCHEDULES, _AROUND),
    "store/postgres/*": (_POSTGRES, ("tests/store",), ("-kpostgres", "tests/schedules"), ("tests/timeline",)),
    "store/sqlite/*": (_STORES[1:], _SQLITE, _SCHEDULES, _ALL_SCHEDULES, _AROUND),
    "store/*": (
        _STORES,
        ("tests/store/test_damage.py",),
        ("tests/engine",),
        _DECLARED,
        _SCHEDULES,
        _ALL_SCHEDULES,
        _AROUND,
    ),
    "timeline/*": (("tests/timeline/test_fronted.py",), ("tests/timeline",)),
    "engine/*": (("tests/engine",), _SCHEDULES, _DECLARED, _ALL_SCHEDULES, _AROUND),
    "actions/egress/*": (("tests/actions/egress",), ("tests/actions/http", "tests/notify")),
    "access/*": (
        ("tests/access",),
        ("tests/api/test_access.py", "tests/api/test_keys.py", "tests/api/test_login.py"),
        ("tests/api", "tests/web", "tests/service/test_admin_commands.py", "tests/service/test_starting.py"),
    ),
}


def paths_of(stage: Stage) -> list[str]:
    """Return the paths of a stage without its options."""
    return [part for part in stage if not part.startswith("-")]


@dataclass(frozen=True)
class Result:
    """The outcome for one mutant; `test` is the test that caught it, or what happened instead of a test."""

    mutant: Mutant
    line: int
    outcome: Outcome
    test: str
    seconds: float


def stages_for(file: str) -> tuple[Stage, ...]:
    """Return the stages of tests that cover a file of the package."""
    for pattern, stages in COVERING.items():
        if fnmatch.fnmatch(file, pattern):
            return stages
    raise LookupError(f"No tests are listed for {file}: add it to COVERING in tests/mutants/run.py")


def failed_test(output: str) -> str:
    """Return the test that the output of `pytest -x -v` names as failed; else the last line that says something."""
    found = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", output, flags=re.MULTILINE)
    if found:
        return found[1]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:120] if lines else "no output"


def outcome_of(status: int, output: str) -> tuple[Outcome, str]:
    """Return what the exit status of pytest says about the mutant, and the test that says so."""
    if status in {0, 5}:  # 5: the options of the stage have left no test
        return "survived", ""
    if status < 0:
        return "unreliable", f"pytest was ended by {signal.Signals(-status).name} in {running_test(output)}"
    return "caught", failed_test(output)


def running_test(output: str) -> str:
    """Return the test that `pytest -v` has started last."""
    started = re.findall(
        r"^(tests/\S+?::.*?)(?: (?:PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b.*)?$", output, flags=re.MULTILINE
    )
    return str(started[-1]).strip() if started else "collection"


def shown_change(mutant: Mutant) -> tuple[str, str]:
    """Return what differs between the lines, with a word on either side."""
    before, after = " ".join(mutant.original).split(), " ".join(mutant.replacement).split()
    if not after:
        return " ".join(before), ""
    first = 0
    while first < min(len(before), len(after)) - 1 and before[first] == after[first]:
        first += 1
    last = 0
    while last < min(len(before), len(after)) - first - 1 and before[-1 - last] == after[-1 - last]:
        last += 1
    first, last = max(first - 1, 0), max(last - 1, 0)
    return " ".join(before[first : len(before) - last]), " ".join(after[first : len(after) - last])


class Worker:
    """A copy of the package, and the runs of pytest on it."""

    def __init__(self, folder: Path, stop: threading.Event) -> None:
        self._stop = stop
        self._copy = folder / "src" / "noonbell"
        self._temporary = folder / "tmp"
        self._output = folder / "output"
        self._temporary.mkdir(parents=True)
        shutil.copytree(PACKAGE, self._copy, ignore=shutil.ignore_patterns("__pycache__"))
        dropped = ("MAKE", "MFLAGS", "PYTEST", "PYTHONDONTWRITEBYTECODE")
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(dropped)},
            "PYTHONPATH": str(folder / "src"),
            "TMPDIR": str(self._temporary),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        }
        self._check_imports()

    def _check_imports(self) -> None:
        """Make sure that tests, and the processes that they start, import the copy."""
        command = [sys.executable, "-c", "import noonbell; print(noonbell.__file__)"]
        answer = subprocess.run(command, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=True)
        if Path(answer.stdout.strip()).parent != self._copy:
            raise RuntimeError(f"The tests would import {answer.stdout.strip()} and not the copy in {self._copy}")

    def test(self, mutant: Mutant) -> Result:
        """Run the tests that cover the changed file until one fails."""
        began = time.monotonic()
        path = self._copy / mutant.file
        try:
            source = (PACKAGE / mutant.file).read_text(encoding="utf-8")
            line, changed = mutant.line_in(source), mutant.applied_to(source)
        except (OSError, StaleMutantError):
            return Result(mutant, 0, "stale", "", 0.0)
        outcome: Outcome = "survived"
        test = ""
        self._write(path, changed)
        try:
            earlier: list[str] = []
            for stage in stages_for(mutant.file):
                outcome, test = self._pytest(stage, ignored=[name for name in earlier if name not in stage])
                if outcome != "survived":
                    break
                earlier.extend(paths_of(stage))
        finally:
            self._write(path, source)
        if outcome in {"caught", "timed out"} and "::" in test and self._pytest((test,))[0] != "survived":
            outcome, test = "unreliable", f"{test} fails on the unchanged code too"
        if outcome == "survived" and mutant.equivalent:
            outcome = "equivalent"
        return Result(mutant, line, outcome, test, time.monotonic() - began)

    def _write(self, path: Path, source: str) -> None:
        """Replace a module and its compiled form, which Python would take for current if the size stays the same."""
        path.write_text(source, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def _pytest(self, paths: Iterable[str], ignored: Iterable[str] = ()) -> tuple[Outcome, str]:
        command = [sys.executable, "-m", "pytest", "-x", "-v", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += [f"--ignore={name}" for name in ignored]
        with self._output.open("wb") as output:
            process = subprocess.Popen(
                [*command, *paths],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                hangs = self._wait(process)
            finally:
                _end(process)
                _end_servers(self._temporary)
        said = self._output.read_text(encoding="utf-8", errors="replace")
        for left in self._temporary.iterdir():
            shutil.rmtree(left, ignore_errors=True)
        if hangs:
            return "timed out", running_test(said)
        return outcome_of(process.returncode, said)

    def _wait(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for the end; return whether the process was silent for too long instead."""
        size, since = -1, time.monotonic()
        while process.poll() is None:
            if self._stop.wait(0.1):
                raise InterruptedError("the run was stopped")
            if (now_size := self._output.stat().st_size) != size:
                size, since = now_size, time.monotonic()
            elif time.monotonic() - since > SILENCE_S:
                return True
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End pytest if it still runs: first with an interrupt, on which the fixtures stop their servers."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_servers(temporary: Path) -> None:
    """End the PostgreSQL servers that a killed run has left behind: each is a session of its own."""
    for file in temporary.rglob("postmaster.pid"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(file.read_text(encoding="utf-8").split()[0])
            if Path(f"/proc/{pid}/cwd").resolve() == file.parent.resolve():
                os.kill(pid, signal.SIGQUIT)


def run(mutants: Sequence[Mutant], jobs: int) -> list[Result]:
    """Test all mutants and print a line for each as it is done; the results are in the order of the mutants."""
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="noonbell-mutants-") as base:
        Path(base).chmod(0o755)  # a PostgreSQL server runs as another user where the tests run as root
        workers: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        stop = threading.Event()
        for number in range(jobs):
            workers.put(Worker(Path(base) / str(number), stop))

        def test(mutant: Mutant) -> Result:
            worker = workers.get()
            try:
                return worker.test(mutant)
            finally:
                workers.put(worker)

        with ThreadPoolExecutor(jobs) as pool:
            pending = [pool.submit(test, mutant) for mutant in mutants]
            try:
                for done in as_completed(pending):
                    results[done.result().mutant.id] = done.result()
                    print(line_for(done.result()), flush=True)
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
    return [results[mutant.id] for mutant in mutants]


def line_for(result: Result) -> str:
    """Return one line about a result."""
    mutant, (before, after) = result.mutant, shown_change(result.mutant)
    place = f"{mutant.file}:{result.line}"
    return (
        f"{mutant.id:<12} {result.outcome:<10} {result.seconds:6.1f} s  {place}  {before}  ->  {after}  {result.test}"
    )


def summary(results: Sequence[Result]) -> str:
    """Return the table of counts for each group, and what is wrong."""
    outcomes: tuple[Outcome, ...] = ("caught", "timed out", "equivalent", "survived", "stale", "unreliable")
    counts = Counter((result.mutant.group, result.outcome) for result in results)
    groups: Mapping[str, None] = dict.fromkeys(result.mutant.group for result in results)
    lines = ["group       " + "".join(f"{outcome:>12}" for outcome in outcomes)]
    lines += [f"{group:<12}" + "".join(f"{counts[group, outcome]:>12}" for outcome in outcomes) for group in groups]
    totals = [sum(counts[group, outcome] for group in groups) for outcome in outcomes]
    lines.append(f"{'all':<12}" + "".join(f"{total:>12}" for total in totals))
    return "\n".join([*lines, *(problem for problem in map(problem_of, results) if problem)])


def problem_of(result: Result) -> str:
    """Return why a result fails the run; an empty text if it does not."""
    name, outcome = result.mutant.id, result.outcome
    if outcome == "stale":
        return f"{name} no longer applies to {result.mutant.file}: run `make draw-mutants`"
    if outcome == "survived":
        return (
            f"{name} survived: write a test that catches it, or explain it as equivalent in tests/mutants/mutants.json"
        )
    if outcome == "unreliable":
        return f"{name}: {result.test}"
    if result.mutant.equivalent and outcome != "equivalent":
        return f"{name} is explained as equivalent, but {result.test} catches it: remove the explanation"
    return ""


def write_table(results: Sequence[Result], path: Path) -> None:
    """Replace what follows the heading of the results in a Markdown document."""
    rows = ["| mutant | place | change | caught by | s |", "| --- | --- | --- | --- | ---: |"]
    for result in results:
        mutant, (before, after) = result.mutant, shown_change(result.mutant)
        caught = f"equivalent: {mutant.equivalent}" if result.outcome == "equivalent" else f"`{result.test}`"
        if result.outcome not in {"caught", "equivalent"}:
            caught = f"{result.outcome} {caught}"
        cells = (
            mutant.id,
            f"`{mutant.file}` {mutant.function}",
            f"`{before}` → `{after}`",
            caught,
            f"{result.seconds:.0f}",
        )
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    text = path.read_text(encoding="utf-8")
    head, found, _ = text.partition(_RESULTS)
    if not found:
        raise SystemExit(f"{path} has no heading {_RESULTS.strip()!r}")
    counts = f"```text\n{summary(results)}\n```\n"
    path.write_text(f"{head}{_RESULTS}\n{counts}\n" + "\n".join(rows) + "\n", encoding="utf-8")


def main() -> int:
    """Test the chosen mutants and report."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.run", description="Run the tests against each mutant."
    )
    parser.add_argument("ids", nargs="*", help="mutants or groups; all if none is given")
    parser.add_argument("--jobs", type=int, default=2, help="mutants to test at the same time (default: 2)")
    parser.add_argument("--markdown", type=Path, help="write the table of results into this document")
    options = parser.parse_args()
    mutants = load()
    unknown = set(options.ids) - {mutant.id for mutant in mutants} - {mutant.group for mutant in mutants}
    if unknown:
        parser.error(f"unknown mutants: {', '.join(sorted(unknown))}")
    if options.ids and options.markdown:
        parser.error("--markdown needs the results of all mutants")
    chosen = [mutant for mutant in mutants if not options.ids or {mutant.id, mutant.group} & set(options.ids)]
    missing = [
        path
        for stages in COVERING.values()
        for stage in stages
        for path in paths_of(stage)
        if not (ROOT / path).exists()
    ]
    if missing:
        parser.error(
            f"COVERING in tests/mutants/run.py names paths that do not exist: {', '.join(sorted(set(missing)))}"
        )
    began = time.monotonic()
    results = run(chosen, options.jobs)
    print(f"\n{summary(results)}\n{len(results)} mutants in {time.monotonic() - began:.0f} s")
    if options.markdown:
        write_table(results, options.markdown)
    return 1 if any(map(problem_of, results)) else 0


if __name__ == "__main__":
    # A termination, like an interrupt, has to end the runs of pytest and their servers. A shell starts commands in the
    # background with interrupts ignored, and pytest would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
