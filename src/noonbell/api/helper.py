"""A helper process for requests that compute for seconds.

A thread would share the interpreter lock with the event loop, and the service would keep the memory that it used.
The helper runs at a lower priority, has limits of its own, and ends with the request:

    async with HelperProcess() as helper:
        file = await helper.call(loads, text, format="toml")

Parent and helper exchange pickled values, each behind its length, through pipes that nothing else can write to. The
helper ends when its input does, so it does not outlive a service that was killed.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import BinaryIO, Final, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

CPU_SECONDS: Final = 60
MEMORY_BYTES: Final = 1024**3
_NICENESS: Final = 10
_OUT_OF_MEMORY: Final = 3
_LIMIT_EXCEEDED: Final = (_OUT_OF_MEMORY, -signal.SIGXCPU, -signal.SIGKILL)
_LENGTH: Final = struct.Struct(">Q")
# The helper does not get the settings of the service, which may hold passwords.
_ENVIRONMENT: Final = frozenset(
    ["HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "PYTHONTZPATH", "TMPDIR", "TZ"]
)


class HelperProcess:
    """One helper, for the time of a `with` block. Calls are made one after the other."""

    _process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", __name__,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name in _ENVIRONMENT},
            start_new_session=True,  # Ctrl-C is for the service
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the function returns, or raise what it raises. 422 if it exceeds the limits of the helper."""
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None  # noqa: S101 - pipes were asked for
        assert sink is not None  # noqa: S101 - as above
        job = await asyncio.to_thread(pickle.dumps, (function, args, kwargs), pickle.HIGHEST_PROTOCOL)
        try:
            sink.writelines((_LENGTH.pack(len(job)), job))
            await sink.drain()
            (length,) = _LENGTH.unpack(await source.readexactly(_LENGTH.size))
            answer = await source.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise _failure(await self._process.wait()) from None
        result, error = await asyncio.to_thread(pickle.loads, answer)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]  # of the function that was sent


def _failure(status: int) -> Exception:
    """Return the error for a helper that ended during a call."""
    from noonbell.api.problems import ProblemError  # noqa: PLC0415 - the helper starts faster without FastAPI

    if status not in _LIMIT_EXCEEDED:
        return RuntimeError(f"the helper process ended with status {status}")
    limits = f"{CPU_SECONDS} s of processor time or {MEMORY_BYTES // 1024**2} MiB of memory"
    return ProblemError(422, f"This request takes more than {limits}; split it into smaller ones", kind="too-large")


def _serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer each job with its result and None, or with None and its error, until the input ends."""
    while head := source.read(_LENGTH.size):
        job = source.read(*_LENGTH.unpack(head))
        try:
            function, args, kwargs = pickle.loads(job)  # noqa: S301 - only the parent writes into this pipe
            answer = pickle.dumps((function(*args, **kwargs), None), pickle.HIGHEST_PROTOCOL)
        except MemoryError:
            sys.exit(_OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent raises it
            answer = pickle.dumps((None, error), pickle.HIGHEST_PROTOCOL)
        del job
        sink.write(_LENGTH.pack(len(answer)) + answer)
        sink.flush()


if __name__ == "__main__":
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that prints gets in between
    _serve(sys.stdin.buffer, answers)
