"""The daily work of an external program: run it, log its output, distinguish a missing program from a failing one."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from subprocess import CalledProcessError
from typing import Final

from noonbell.errors import DailyTasksUnavailable
from noonbell.periodic.capabilities import Capabilities

DEFAULT_PROGRAM: Final = "noonbell-daily-tasks"
_LONGEST_LOGGED: Final = 20_000


def daily_program(
    capabilities: Capabilities, program: str = DEFAULT_PROGRAM, *arguments: str
) -> Callable[[], Awaitable[None]]:
    """A callback that runs the program once, to be scheduled as the daily task.

    Its stdout and stderr are logged with their line counts. A program that is not installed is a warning
    (DailyTasksUnavailable) and a run that is skipped: it counts as done, and is not retried before its next
    occurrence. Any other exit status than 0 raises CalledProcessError, and other errors rise as they are.
    """

    async def run_daily_program() -> None:
        logger = capabilities.logger
        try:
            output = await capabilities.subprocess(program, *arguments)
        except FileNotFoundError:
            # The system says the same of a script whose interpreter is missing; that is a fault, not an absence.
            if shutil.which(program) is not None:
                raise
            unavailable = DailyTasksUnavailable(program)
            kind = type(unavailable).__name__
            extra = {"noonbell": {"warning": kind, "program": program}}
            logger.warning("%s: %s", kind, unavailable, extra=extra)
            return
        for stream, text in (("stdout", output.stdout), ("stderr", output.stderr)):
            lines = len(text.splitlines())
            facts = {"program": program, "stream": stream, "lines": lines}
            shown = f":\n{_cut(text)}" if lines else ""
            logger.info("%s wrote %d lines to %s%s", program, lines, stream, shown, extra={"noonbell": facts})
        if output.exit_code != 0:
            failure = CalledProcessError(output.exit_code, [program, *arguments], output.stdout, output.stderr)
            last = output.stderr.strip().splitlines()[-1:]
            failure.add_note(f"Last output on stderr: {last[0][:500] if last else 'nothing'}")
            raise failure

    return run_daily_program


def _cut(text: str) -> str:
    """Return the text, or its end where it is long: the error is usually printed last."""
    plain = text.rstrip("\n")
    if len(plain) <= _LONGEST_LOGGED:
        return plain
    return f"… {len(plain) - _LONGEST_LOGGED} characters left out …\n{plain[-_LONGEST_LOGGED:]}"
