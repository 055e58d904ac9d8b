"""`noonbell why`: explain why a task or schedule ran or did not run at a time."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import click
from rich.text import Text

from noonbell.cli.cli_errors import CliError, HintingCommand, printable
from noonbell.cli.completion_sources import schedule_names
from noonbell.cli.connection_target import ConnectionTarget, with_backend
from noonbell.cli.ledger_commands import owner_named, owner_options, print_text
from noonbell.errors import LanguageError
from noonbell.language.time_phrases import ACCEPTED, read_time
from noonbell.ledger import Answer

if TYPE_CHECKING:
    from noonbell.cli.backend.backend_protocol import Backend

_EXAMPLES: Final = """\b
noonbell why --db sqlite:///app.db sync-logs 02:30
noonbell why --db sqlite:///app.db sync-logs 2026-11-01T01:30
noonbell why --db sqlite:///app.db report yesterday at 9
noonbell why report 09:00 --server https://bell.example.org
"""


@click.command("why", cls=HintingCommand, epilog=_EXAMPLES)
@click.argument("task", metavar="NAME", shell_complete=schedule_names)
@click.argument("words", metavar="[TIME]", nargs=-1)
@owner_options
@with_backend
def command(
    *, task: str, words: tuple[str, ...], scheduler: str | None, owner: str | None, place: ConnectionTarget
) -> None:
    """Explain why a task or schedule ran or did not run at TIME; without TIME, at its latest occurrence, with the next
    one. NAME is its name or its id.

    TIME is HH:MM (today), English such as "yesterday at 9" or "2 hours ago", or ISO-8601, in the zone of the schedule
    unless it has an offset.
    """
    owned_by = owner_named(scheduler, owner, as_json=place.as_json)

    async def ask(backend: Backend) -> Answer:
        at = None
        if words:  # a date and a time may come as two
            zone = ZoneInfo(await backend.ledger.zone_of(task, owned_by))
            at = _moment(" ".join(words), place.now.astimezone(zone), as_json=place.as_json)
        return await backend.ledger.why(task, at, owned_by)

    answer = place.ask(ask, read_only=True)
    if place.as_json:
        click.echo(json.dumps({"text": answer.text, **answer.facts}, ensure_ascii=False))
        return
    print_text(Text(printable(answer.text)))


def _moment(text: str, here: datetime, *, as_json: bool) -> datetime:
    """Parse a time of today, a date, English or ISO 8601; without an offset, it may occur twice or never."""
    try:
        return read_time(text, here)
    except LanguageError as error:
        message = f'"{text}" is not a time: {error.reason}'
        facts = {"argument": "TIME", "value": text, "accepted": list(ACCEPTED)}
        raise CliError(message, facts, (f"Accepted are {', '.join(ACCEPTED)}",), as_json=as_json) from error
