"""`noonbell prune`: delete old days of a ledger, and keep their counts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from datetime import datetime, timedelta
from typing import Final

import click
from rich.text import Text

from noonbell.cli.cli_errors import CliError, HintingCommand
from noonbell.cli.connection_target import ConnectionTarget, with_backend
from noonbell.cli.ledger_commands import print_text
from noonbell.cli.progress import working
from noonbell.core.instants import instant, moment
from noonbell.errors import StoreError
from noonbell.ledger.explanation_text import counted
from noonbell.ledger.retention import Forgotten, prunable
from noonbell.ports import Ledger
from noonbell.store.opening import open_store, require_ledger

_EXAMPLES: Final = """\b
noonbell prune --db sqlite:///app.db --keep 90d --dry-run
noonbell prune --db sqlite:///app.db --keep 90d
"""
_DAY: Final = 86_400_000_000
_UNITS: Final = {"d": 1, "w": 7, "y": 365}
_KEEP: Final = re.compile(r"\s*([0-9]{1,6})\s*([dwy])\s*")
_RIGHT: Final = "a number of days, weeks or years, such as 90d, 12w or 2y"


@click.command("prune", cls=HintingCommand, epilog=_EXAMPLES)
@click.option("--keep", metavar="LENGTH", required=True, help="How much history to keep, such as 90d.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
@with_backend
def command(*, keep: str, dry_run: bool, place: ConnectionTarget) -> None:
    """Delete the days of a ledger that are older than LENGTH: their runs, spans, attempts, audit events, dead letters.

    The counts of each day and schedule are kept, so that `noonbell verify` can still check the whole ledger. Runs that
    have not ended and occurrences that are not decided are kept. Days are in UTC. A service prunes by itself
    (retention_days); this command works on a database.
    """
    url = place.require_store("prune")
    before = instant(_begin(place.now, keep, as_json=place.as_json))

    async def session() -> Forgotten:
        require_ledger(url)
        store = open_store(url, read_only=dry_run)
        await store.open()
        try:
            return await (prunable(store, before) if dry_run else _pruned(store, before, as_json=place.as_json))
        finally:
            await store.close()

    try:
        found = asyncio.run(session())
    except StoreError as error:
        facts = {"option": "--db", "value": place.shown, "kind": type(error).__name__}
        raise place.cli_error(str(error), facts) from error
    if place.as_json:
        document = {"dry_run": dry_run, "before": moment(before).isoformat(), **found.as_dict()}
        click.echo(json.dumps(document))
        return
    verb = "would go" if dry_run else "gone"
    if not found.days:
        print_text(Text(f"nothing {'would be deleted' if dry_run else 'to prune'}: no day ended by {_shown(before)}"))
        return
    text = (
        f"  {counted(found.days, 'day')} that ended by {_shown(before)}: {counted(found.runs, 'run')}, "
        f"{counted(found.spans, 'span')}, {counted(found.attempts, 'attempt')}, "
        f"{counted(found.audits, 'audit event')}, {counted(found.dead_letters, 'dead letter')}, "
        f"{counted(found.lifecycle_events, 'lifecycle event')}"
    )
    print_text(Text.assemble((verb, "bold"), text))


async def _pruned(store: Ledger, before: int, *, as_json: bool) -> Forgotten:
    total = Forgotten()
    with working("Forgetting old days", as_json=as_json, unit="days") as work:
        days: int | None = None
        while (pruned := await store.prune_day(before)) is not None:
            total.add(pruned)
            days = (before - pruned.day) // _DAY if days is None else days
            work.update(total.days, max(days, total.days))
    return total


def _shown(at: int) -> str:
    return f"{moment(at):%Y-%m-%d %H:%M} UTC"


def _begin(now: datetime, keep: str, *, as_json: bool) -> datetime:
    """Return the time from which on everything is kept."""
    read = _KEEP.fullmatch(keep)
    if read is not None:
        with contextlib.suppress(OverflowError):  # reported below
            return now - timedelta(days=int(read[1]) * _UNITS[read[2]])
    facts = {"option": "--keep", "value": keep, "right": _RIGHT}
    raise CliError(f'--keep "{keep}" is not a length of time', facts, (f"Right is {_RIGHT}",), as_json=as_json)
