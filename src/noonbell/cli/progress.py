"""Progress of long work: a bar on stderr if that is a terminal, and nothing elsewhere or with --json.

The bar appears after a second, so that short work does not flash a line.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console

_PATIENCE_SECONDS: Final = 1.0


class ProgressReporter:
    """Reports the progress of a task that takes a while."""

    def __init__(self, draw: Callable[[int, int | None], None] | None = None) -> None:
        self._draw = draw

    def update(self, done: int, total: int | None = None) -> None:
        """Report how much is done, and with `total`, of how much."""
        if self._draw is not None:
            self._draw(done, total)

    def counted(self, done: int) -> None:
        """Report how much is done, as a callback with one number."""
        self.update(done)


@contextlib.contextmanager
def working(title: str, *, as_json: bool, unit: str = "") -> Iterator[ProgressReporter]:
    """Show `title` with the progress of the block; the line is removed when the block ends."""
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        yield ProgressReporter()
        return
    from rich.progress import (  # noqa: PLC0415 - only where something is drawn
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f} " + unit if unit else ""),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task(title, total=None)
    later = threading.Timer(_PATIENCE_SECONDS, progress.start)
    later.daemon = True
    later.start()
    try:
        yield ProgressReporter(lambda done, total: progress.update(task, completed=done, total=total))
    finally:
        later.cancel()
        later.join()  # it may be about to begin
        progress.stop()
