"""`noonbell why`: why a task or schedule did, or did not, run at a time."""

from __future__ import annotations

import json
import re
from datetime import datetime, time
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import click
from rich.text import Text

from noonbell.cli.complaints import Complaint, SpeakingCommand, printable
from noonbell.cli.completing import schedule_names
from noonbell.cli.ledger import owner_named, owner_options, tell
from noonbell.cli.place import Place, placed
from noonbell.ledger import Answer

if TYPE_CHECKING:
    from noonbell.cli.backend.protocol import Backend

_EXAMPLES: Final = """\b
noonbell why --db sqlite:///app.db sync-logs 02:30
noonbell why --db sqlite:///app.db sync-logs 2026-11-01T01:30
noonbell why report 09:00 --server https://bell.example.org
"""
_CLOCK: Final = re.compile(r"\s*(\d\d?):(\d\d)(?::(\d\d))?\s*")
_RIGHT: Final = "HH:MM or HH:MM:SS (today), or an ISO-8601 time such as 2026-11-01T01:30 or 2026-11-01T01:30-04:00"


@click.command("why", cls=SpeakingCommand, epilog=_EXAMPLES)
@click.argument("task", metavar="NAME", shell_complete=schedule_names)
@click.argument("words", metavar="[TIME]", nargs=-1)
@owner_options
@placed
def command(*, task: str, words: tuple[str, ...], scheduler: str | None, owner: str | None, place: Place) -> None:
    """Say why a task or schedule did, or did not, run at TIME; without TIME, at its latest occurrence, and what comes
    next. NAME is its name or its id.

    TIME is HH:MM or HH:MM:SS (today), or ISO-8601, in the zone of the schedule unless it has an offset.
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
    tell(Text(printable(answer.text)))


def _moment(text: str, here: datetime, *, as_json: bool) -> datetime:
    """HH:MM of today, or an ISO-8601 time; without an offset it stays a civil time, which may come twice or never."""
    try:
        clock = _CLOCK.fullmatch(text)
        if clock is not None:
            hour, minute, second = (int(part or 0) for part in clock.groups())
            return datetime.combine(here.date(), time(hour, minute, second))
        return datetime.fromisoformat(text.strip())
    except ValueError as error:
        message = f'"{text}" is not a time: {error}'
        facts = {"argument": "TIME", "value": text, "right": _RIGHT}
        raise Complaint(message, facts, (f"Right is {_RIGHT}",), as_json=as_json) from error
