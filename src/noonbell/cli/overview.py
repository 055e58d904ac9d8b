"""The view of `noonbell top`: reading and drawing due schedules, runs, failures and engines.

The first few thousand schedules are read; if there are more, the view says so. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from noonbell.cli.backend.backend_protocol import Backend, EngineUp
from noonbell.cli.cli_errors import printable
from noonbell.cli.console_tables import ago, clock, seconds_text, state_cell
from noonbell.cli.schedule_views import action_text, described
from noonbell.schedules.history import Run
from noonbell.schedules.schedule_records import Schedule

_PAGE: Final = 1_000
_MOST: Final = 3_000
_RUNS: Final = 100
_ENGINES: Final = 8


class Look(NamedTuple):
    """The state at one moment."""

    at: datetime
    engines: Sequence[EngineUp]
    schedules: Sequence[Schedule]
    more: bool  # more schedules exist than were read
    runs: Sequence[Run]
    failures: Sequence[Run]

    @property
    def due(self) -> list[Schedule]:
        waiting = [one for one in self.schedules if one.enabled and one.next_run_at is not None]
        return sorted(waiting, key=lambda one: (one.next_run_at, one.name))

    @property
    def running(self) -> list[Schedule]:
        return [one for one in self.schedules if one.running]

    @property
    def lateness(self) -> dict[str, float] | None:
        """The lateness of the latest runs, in seconds."""
        found = sorted(run.lateness.total_seconds() for run in self.runs if run.lateness is not None)
        if not found:
            return None
        return {
            "p50": found[len(found) // 2],
            "p95": found[min(len(found) - 1, len(found) * 95 // 100)],
            "max": found[-1],
        }

    @property
    def lanes(self) -> list[tuple[str, datetime, int]]:
        """The lanes that are up, each with its start and the number of its engines."""
        shared: dict[str, list[EngineUp]] = {}
        for one in self.engines:
            shared.setdefault(one.lane, []).append(one)
        return [(lane, min(one.up_since for one in those), len(those)) for lane, those in sorted(shared.items())]

    @property
    def outcomes(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for run in self.runs:
            counts[run.state] = counts.get(run.state, 0) + 1
        return counts

    def data(self) -> dict[str, Any]:
        return {
            "at": self.at.isoformat(),
            "lanes": [{"lane": lane, "up_since": since.isoformat()} for lane, since, _ in self.lanes],
            "engines": [one.data() for one in self.engines],
            "schedules": len(self.schedules),
            "more_schedules": self.more,
            "due": [_due_data(one) for one in self.due[:20]],
            "running": [{"schedule_id": one.schedule_id, "name": one.name} for one in self.running],
            "failures": [{"run_id": one.run_id, "name": one.name, "state": one.state} for one in self.failures],
            "lateness_seconds": self.lateness,
            "outcomes": self.outcomes,
        }


def _due_data(one: Schedule) -> dict[str, Any]:
    assert one.next_run_at is not None  # noqa: S101 - `due` holds no others
    return {"schedule_id": one.schedule_id, "name": one.name, "next_run_at": one.next_run_at.isoformat()}


async def look(backend: Backend, team: str | None, at: datetime) -> Look:
    whose = backend.team_seen(team)
    filters = {} if whose is None else {"team": whose}
    schedules: list[Schedule] = []
    cursor: str | None = None
    while len(schedules) < _MOST:
        page = await backend.schedules.list(cursor=cursor, limit=_PAGE, enabled=True, **filters)
        schedules += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    runs = (await backend.schedules.recent_runs(limit=_RUNS, team=whose)).items
    failures = (await backend.schedules.recent_runs(limit=10, outcome="failed", team=whose)).items
    return Look(at, await backend.engines(), schedules, cursor is not None, runs, failures)


# --- drawing ----------------------------------------------------------------------------------------------------------


def drawn(seen: Look, where: str, width: int, height: int, *, note: str = "") -> RenderableType:
    """Return the whole view, for a terminal of this size."""
    taken = 12 + min(5, len(seen.running)) + (min(_ENGINES, len(seen.engines)) + 2 if len(seen.engines) > 1 else 0)
    room = max(2, (height - taken) // 3)
    parts: list[RenderableType] = [_head(seen, where), _figures(seen), Text()]
    if len(seen.engines) > 1:
        parts += [Text("Engines", "bold"), _engines(seen, width), Text()]
    if seen.running:
        parts += [Text("Running", "bold cyan"), _running(seen, width), Text()]
    parts += [Text("Due soon", "bold green"), _due(seen, width, room), Text()]
    if seen.failures:
        parts += [Text("Failures", "bold red"), _ended(seen.failures[: max(2, room // 2)], seen.at, width), Text()]
    parts += [Text("Latest runs", "bold"), _ended(seen.runs[:room], seen.at, width), Text()]
    parts.append(Text(note or "q quits", "yellow" if note else "dim"))
    return Group(*parts)


def _head(seen: Look, where: str) -> Text:
    lanes = ", ".join(
        f"{lane} (up {ago(since, seen.at).removesuffix(' ago')}{f', {many} engines' if many > 1 else ''})"
        for lane, since, many in seen.lanes
    )
    engine = Text(lanes, "green") if seen.lanes else Text("no engine is up", "bold red")
    # the important facts first: a long line is cut at its end
    parts = (("noonbell", "bold"), f"  {seen.at:%H:%M:%S} UTC  ", engine, f"  {where}")
    return Text.assemble(*parts, overflow="ellipsis", no_wrap=True)


def _figures(seen: Look) -> Text:
    late = seen.lateness
    lateness = (
        "no runs yet" if late is None else f"late p50 {seconds_text(late['p50'])}, p95 {seconds_text(late['p95'])}"
    )
    many = f"{len(seen.schedules)}{'+' if seen.more else ''} active"
    line = Text(f"{many}  {lateness}  ", "dim")
    for state, count in sorted(seen.outcomes.items()):
        line.append_text(state_cell(state))
        line.append(f" {count}  ")
    return line


def _grid(*widths: int | None) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    for width in widths:
        table.add_column(width=width, no_wrap=True, overflow="ellipsis", ratio=None if width else 1)
    return table


def _named(width: int) -> int:
    return min(40, max(14, width * 3 // 10))


def _engines(seen: Look, width: int) -> Table:
    table = _grid(_named(width), 8, 20, None)
    for one in seen.engines[:_ENGINES]:
        late = one.load.get("late_p99_seconds")
        lateness = "" if late is None else f"  late p99 {seconds_text(late)}"
        table.add_row(
            Text(printable(one.where or one.lane)), Text(one.state, "green" if one.state == "up" else "yellow"),
            Text(f"{one.load.get('running', 0)} in flight, {one.load.get('started_per_minute', 0)}/min"),
            Text(f"seen {seconds_text(one.seen_seconds_ago)} ago  {printable(one.version)}{lateness}", "dim"),
        )  # fmt: skip
    if len(seen.engines) > _ENGINES:
        table.add_row(Text(f"and {len(seen.engines) - _ENGINES} more", "dim"), "", "", "")
    return table


def _running(seen: Look, width: int) -> Table:
    table = _grid(_named(width), None)
    for one in seen.running[:5]:
        table.add_row(Text(printable(one.name)), Text(printable(action_text(one.action)), "dim"))
    return table


def _due(seen: Look, width: int, room: int) -> RenderableType:
    if not seen.due:
        return Text("  nothing", "dim")
    table = _grid(_named(width), 14, None)
    for one in seen.due[:room]:
        when = Text(ago(one.next_run_at, seen.at), "green")
        if one.next_run_at is not None and one.next_run_at < seen.at:
            when = Text(f"due {ago(one.next_run_at, seen.at)}", "yellow")
        table.add_row(Text(printable(one.name)), when, Text(f"{described(one)} ({one.timezone})", "dim"))
    return table


def _ended(runs: Sequence[Run], at: datetime, width: int) -> RenderableType:
    if not runs:
        return Text("  nothing", "dim")
    table = _grid(_named(width), 12, 12, None)
    for one in runs:
        late = "" if one.lateness is None else f"late {seconds_text(one.lateness.total_seconds())}  "
        when = (
            f"{late}{ago(one.ended_at, at)}" if width < 110 else f"{late}{ago(one.ended_at, at)}  {clock(one.ended_at)}"
        )
        took = "-" if one.duration is None else seconds_text(one.duration.total_seconds())
        table.add_row(Text(printable(one.name)), state_cell(one.state), Text(took), Text(when, "dim"))
    return table
