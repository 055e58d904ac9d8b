"""Printing of tables and facts: fitted to a terminal, and uncut elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.table import Table
from rich.text import Text

from noonbell.cli.cli_errors import printable
from noonbell.cli.typed_times import span_text

_UNBOUNDED: Final = 10_000
STATES: Final = {
    "succeeded": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "abandoned": ("✗", "red"),
    "unknown": ("?", "yellow"),
    "running": ("▸", "cyan"),
    "queued": ("·", "cyan"),
    "waiting": ("↻", "yellow"),
}

Cell = str | Text


def console() -> Console:
    """Return a console as wide as the terminal; without one, as wide as the lines."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_UNBOUNDED, soft_wrap=True)


def print_table(
    headings: Sequence[str], lines: Iterable[Sequence[Cell]], *, folded: int | tuple[int, ...] = ()
) -> None:
    """Print a table without frames. If it is too wide, only the columns `folded` are wrapped."""
    wrapping = (folded,) if isinstance(folded, int) else folded
    out = console()
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        wraps = place in wrapping
        table.add_column(heading, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis")
    for line in lines:
        table.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in line))
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        out.print(Text(line.rstrip()), soft_wrap=True)


def print_facts(facts: Iterable[tuple[str, Cell | None]]) -> None:
    """Print names and values, one per line, without those that have no value."""
    shown = [(name, value) for name, value in facts if value is not None and str(value) != ""]
    width = max((len(name) for name, _ in shown), default=0) + 2
    out = console()
    for name, value in shown:
        said = Text(printable(value)) if isinstance(value, str) else value
        lines = said.wrap(out, max(20, out.width - width - 2), overflow="fold") if out.is_terminal else [said]
        for number, line in enumerate(lines):
            line.rstrip()
            head = f"  {name if number == 0 else '':<{width}}"
            out.print(Text.assemble((head, "dim"), line), soft_wrap=True)


def state_cell(state: str) -> Text:
    """Return a state with its sign and name, so that colour is never the only difference."""
    sign, style = STATES.get(state, ("·", "default"))
    return Text(f"{sign} {printable(state)}", style)


def ago(at: datetime | None, now: datetime) -> str:
    """Return a relative time: `3 min ago`, `in 2 h 5 min`; a dash for never."""
    if at is None:
        return "-"
    distance = at.astimezone(UTC) - now.astimezone(UTC)
    if abs(distance) < timedelta(minutes=1):
        seconds = int(distance.total_seconds())
        return "now" if seconds == 0 else f"in {seconds} s" if seconds > 0 else f"{-seconds} s ago"
    return f"in {span_text(distance)}" if distance > timedelta(0) else f"{span_text(-distance)} ago"


def clock(at: datetime | None, zone: str | None = None) -> str:
    """Return a moment in a zone (default: UTC), with the name or the offset of that zone."""
    if at is None:
        return "-"
    try:
        there = at.astimezone(UTC if zone is None else ZoneInfo(zone))
    except (ValueError, OSError, KeyError):
        there = at.astimezone(UTC)
    return f"{there:%a %Y-%m-%d %H:%M:%S} {there.tzname() or ''}".rstrip()


def seconds_text(seconds: float | None) -> str:
    """Return a duration as text: `340 ms`, `2.4 s`, `3 min 20 s`."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{max(0, round(seconds * 1_000))} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else span_text(timedelta(seconds=seconds))
