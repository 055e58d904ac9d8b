"""The guard, which keeps programs from outliving the process that started them, however it ends.

A process that is killed can end nothing any more. So with its first program it starts a guard: a process that receives
the group of each program and reads until its input ends. That happens when we end, in whatever way, since no other
process has the other end; then the guard kills the groups that are left and exits.

A program that left its group on purpose is out of reach, and so is one that was started in the moment before we were
killed, whose group could not be passed on any more. Where no guard can be started, programs run without one, and that
is logged.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from typing import Final

logger = logging.getLogger("noonbell.actions")

# The guard of a foreground program must survive the keyboard, and one under a service manager the request to end.
_SCRIPT: Final = """
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
os.setsid()
os.chdir("/")
groups = set()
for line in sys.stdin.buffer:
    group = int(line[1:])
    (groups.add if line[:1] == b"+" else groups.discard)(group)
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""
_FOR_THE_LOADER: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class Guard:
    """The guard of this process; it is started when it is needed, and again should it be killed."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self._input: int | None = None
        self._groups: set[int] = set()
        self._lock = threading.Lock()
        self._failure_logged = False

    def prepare(self) -> None:
        """Start the guard if there is none, before a program starts, to shorten the time from its start to `watch`."""
        with self._lock:
            if self._input is None:
                self._start()

    def watch(self, group: int) -> None:
        """Kill this group when we end."""
        with self._lock:
            self._groups.add(group)
            if self._input is None or not self._write(f"+{group}\n"):
                self._start()

    def forget(self, group: int) -> None:
        """Stop watching a group that has ended: its number may be that of another group from now on."""
        with self._lock:
            self._groups.discard(group)
            if self._input is not None and not self._write(f"-{group}\n"):
                self._dismiss()
                self._drop()
                if self._groups:
                    self._start()

    @property
    def watched(self) -> frozenset[int]:
        return frozenset(self._groups)

    def close(self) -> None:
        """Act as if we had ended; return when the guard has killed what was left."""
        with self._lock:
            self._drop()
            self._groups.clear()
            if self.pid is not None:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self.pid, 0)
                self.pid = None

    def leave_to_parent(self) -> None:
        """Drop all in a forked child: programs and guard are the parent's, and its end must not wait for ours."""
        self._lock = threading.Lock()
        self.pid = None  # not our child
        self._drop()
        self._groups.clear()

    def _write(self, line: str) -> bool:
        if self._input is None:
            return False
        try:
            os.write(self._input, line.encode())
        except OSError:  # it is gone, or suspended and its input is full
            return False
        return True

    def _start(self) -> None:
        """Start a guard that knows all groups, in place of the one before."""
        self._dismiss()
        self._drop()
        reading, writing = os.pipe()
        try:
            os.set_blocking(writing, False)
            env = {name: os.environ[name] for name in _FOR_THE_LOADER if name in os.environ}
            nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _SCRIPT],
                env,
                file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0), *nowhere],
            )
        except (OSError, ValueError, TypeError) as error:  # also where the path of the interpreter is not known
            os.close(writing)
            if not self._failure_logged:
                self._failure_logged = True
                logger.warning("no guard process, programs go on if this process is killed reason=%s", error)
            return
        finally:
            os.close(reading)
        self._input = writing
        if self._groups:
            self._write("".join(f"+{group}\n" for group in self._groups))

    def _dismiss(self) -> None:
        """Kill the old guard: one that is only suspended would take the end of its input for ours when it goes on."""
        pid, self.pid = self.pid, None
        if pid is None:
            return
        with contextlib.suppress(ChildProcessError):  # it was waited for elsewhere
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _drop(self) -> None:
        if self._input is not None:
            os.close(self._input)
            self._input = None


GUARD: Final = Guard()
os.register_at_fork(after_in_child=GUARD.leave_to_parent)
