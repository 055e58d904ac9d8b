"""`noonbell why`: why a task or schedule did, or did not, run at a time."""

from __future__ import annotations

import json
import re
from datetime import datetime, time
from typing import Final

import click
from rich.text import Text

from noonbell.cli.complaints import Complaint, SpeakingCommand, printable
from noonbell.cli.ledger import ask_ledger, db_option, json_option, owner_named, owner_options, tell
from noonbell.ledger import Answer, why
from noonbell.ledger.reading import instant
from noonbell.ledger.why import find_task, zone_of_task
from noonbell.ports import Store

_EXAMPLES: Final = """\b
noonbell why --db sqlite:///app.db sync-logs 02:30
noonbell why --db sqlite:///app.db sync-logs 2026-11-01T01:30
"""
_CLOCK: Final = re.compile(r"\s*(\d\d?):(\d\d)(?::(\d\d))?\s*")
_RIGHT: Final = "HH:MM or HH:MM:SS (today), or an ISO-8601 time such as 2026-11-01T01:30 or 2026-11-01T01:30-04:00"


@click.command("why", cls=SpeakingCommand, epilog=_EXAMPLES)
@db_option
@click.argument("task", metavar="NAME")
@click.argument("words", metavar="[TIME]", nargs=-1)
@owner_options
@json_option
@click.pass_obj
def command(
    now: datetime,
    *,
    url: str,
    task: str,
    words: tuple[str, ...],
    scheduler: str | None,
    owner: str | None,
    as_json: bool,
) -> None:
    """Say why a task or schedule did, or did not, run at TIME; without TIME, at its latest occurrence, and what comes
    next. NAME is its name or its id.

    TIME is HH:MM or HH:MM:SS (today), or ISO-8601, in the zone of the schedule unless it has an offset.
    """
    owned_by = owner_named(scheduler, owner, as_json=as_json)

    async def ask(store: Store) -> Answer:
        at = None
        if words:  # a date and a time may come as two
            zone = zone_of_task(await find_task(store, task, owned_by)).zone
            at = _moment(" ".join(words), now.astimezone(zone), as_json=as_json)
        return await why(store, task, at, managed_by=owned_by, now=instant(now))

    answer = ask_ledger(url, ask, as_json=as_json)
    if as_json:
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
