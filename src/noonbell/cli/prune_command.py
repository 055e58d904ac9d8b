"""`noonbell prune`: forget old days of a ledger, and keep their counts."""

from __future__ import annotations

import contextlib
import json
import re
from datetime import datetime, timedelta
from typing import Final, cast

import click
from rich.text import Text

from noonbell.cli.complaints import Complaint, SpeakingCommand
from noonbell.cli.ledger import ask_ledger, db_option, json_option, tell
from noonbell.cli.reading import terminal
from noonbell.ledger.reading import instant, moment
from noonbell.ledger.retention import Forgotten, prunable
from noonbell.ledger.wording import counted
from noonbell.ports import Pruned, ScheduleStore, Store

_EXAMPLES: Final = """\b
noonbell prune --db sqlite:///app.db --keep 90d --dry-run
noonbell prune --db sqlite:///app.db --keep 90d
"""
_UNITS: Final = {"d": 1, "w": 7, "y": 365}
_KEEP: Final = re.compile(r"\s*([0-9]{1,6})\s*([dwy])\s*")
_RIGHT: Final = "a number of days, weeks or years, such as 90d, 12w or 2y"


@click.command("prune", cls=SpeakingCommand, epilog=_EXAMPLES)
@db_option
@click.option("--keep", metavar="LENGTH", required=True, help="How much of the past stays whole, such as 90d.")
@click.option("--dry-run", is_flag=True, help="Tell what would go, and change nothing.")
@json_option
@click.pass_obj
def command(now: datetime, *, url: str, keep: str, dry_run: bool, as_json: bool) -> None:
    """Forget the days of a ledger that are older than LENGTH: their runs, spans, attempts, audit events, dead letters.

    Of each day and schedule the counts are kept, so that `noonbell verify` can still prove the ledger whole. Runs that
    have not ended, and what a schedule still has to decide, stay. Days are days in UTC.
    """
    before = instant(_begin(now, keep, as_json=as_json))
    shows = not as_json and terminal().is_terminal

    async def ask(store: Store) -> Forgotten:
        if dry_run:
            return await prunable(store, before)
        total = Forgotten()
        while (pruned := await cast("ScheduleStore", store).prune_day(before)) is not None:
            total.add(pruned)
            if shows:
                tell(Text(_day(pruned), "dim"))
        return total

    found = ask_ledger(url, ask, as_json=as_json, read_only=dry_run)
    if as_json:
        told = {"dry_run": dry_run, "before": moment(before).isoformat(), **found.as_dict()}
        click.echo(json.dumps(told))
        return
    verb = "would go" if dry_run else "gone"
    if not found.days:
        tell(Text(f"nothing {'would go' if dry_run else 'to prune'}: no day ended by {_shown(before)}"))
        return
    text = (
        f"  {counted(found.days, 'day')} that ended by {_shown(before)}: {counted(found.runs, 'run')}, "
        f"{counted(found.spans, 'span')}, {counted(found.attempts, 'attempt')}, "
        f"{counted(found.audits, 'audit event')}, {counted(found.dead_letters, 'dead letter')}"
    )
    tell(Text.assemble((verb, "bold"), text))


def _day(pruned: Pruned) -> str:
    return f"{moment(pruned.day).date()}  {counted(pruned.runs, 'run')}, {counted(pruned.spans, 'span')}"


def _shown(at: int) -> str:
    return f"{moment(at):%Y-%m-%d %H:%M} UTC"


def _begin(now: datetime, keep: str, *, as_json: bool) -> datetime:
    """From when on all is kept."""
    read = _KEEP.fullmatch(keep)
    if read is not None:
        with contextlib.suppress(OverflowError):  # told below
            return now - timedelta(days=int(read[1]) * _UNITS[read[2]])
    facts = {"option": "--keep", "value": keep, "right": _RIGHT}
    raise Complaint(f'--keep "{keep}" is not a length of time', facts, (f"Right is {_RIGHT}",), as_json=as_json)
