"""Run a command while other processes keep the processors busy: `python -m tests.busy --processes 4 -- make test`.

Tests that depend on timing pass on an idle machine and fail on a loaded one. The busy processes compute without pause
at normal priority. They are stopped when the command ends, when it fails and when this program is interrupted or
terminated; if this program is killed, they notice within a second and end by themselves. The exit status is the
command's; 128 plus the number of the signal if a signal ended it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Computes for a moment, then checks that the process that started it is still its parent.
_BUSY = """
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:
    sum(range(1_000_000))
"""


@contextmanager
def busy_processes(count: int) -> Iterator[list[int]]:
    """Start `count` busy processes, yield their process ids, and stop them on the way out."""
    command = [sys.executable, "-I", "-S", "-c", _BUSY, str(os.getpid())]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            started.append(process)  # one by one: if the next cannot be started, this one is stopped
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def run(command: list[str], processes: int) -> int:
    """Run the command beside the busy processes and return its exit status."""
    with busy_processes(processes), subprocess.Popen(command) as running:
        try:
            status = running.wait()
        except BaseException:
            # On an interrupt from the terminal the command has received the signal too: give it time to clean up.
            running.terminate()
            try:
                running.wait(timeout=10)
            except subprocess.TimeoutExpired:
                running.kill()
            raise
    return status if status >= 0 else 128 - status


def _terminated(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    """Read the arguments, run the command, report how long it took, and exit with its status."""
    parser = argparse.ArgumentParser(prog="python -m tests.busy", description="Run a command on a busy machine.")
    parser.add_argument("--processes", type=int, default=4, help="number of busy processes (default: 4)")
    parser.add_argument("command", nargs="+", help="the command and its arguments, after --")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _terminated)
    print(f"busy: {arguments.processes} processes beside: {' '.join(arguments.command)}", flush=True)
    began = time.monotonic()
    try:
        status = run(arguments.command, arguments.processes)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except FileNotFoundError as error:
        print(f"busy: command not found: {error.filename}", file=sys.stderr)
        status = 127
    print(f"busy: exit status {status} after {time.monotonic() - began:.0f} s", flush=True)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
