"""`noonbell verify`: check that a ledger is complete and consistent, or list its problems."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from noonbell.cli.cli_errors import CliError, HintingCommand, printable
from noonbell.cli.connection_target import ConnectionTarget, with_backend
from noonbell.cli.ledger_commands import owner_named, owner_options, print_text
from noonbell.cli.progress import working
from noonbell.core.instants import moment
from noonbell.errors import LanguageError
from noonbell.language.time_phrases import read_time
from noonbell.ledger import Report
from noonbell.ledger.explanation_text import counted

if TYPE_CHECKING:
    from noonbell.cli.backend.backend_protocol import Backend

_EXAMPLES: Final = """\b
noonbell verify --db sqlite:///app.db
noonbell verify --db sqlite:///app.db --from 2026-11-01 --to 2026-11-08
"""
_RIGHT: Final = (
    "an ISO-8601 time, such as 2026-11-01T01:30 (UTC) or 2026-11-01T01:30-04:00, or English, such as yesterday at 9"
)


@click.command("verify", cls=HintingCommand, epilog=_EXAMPLES)
@click.option("--from", "from_", metavar="TIME", help="Only occurrences from this time on, ISO-8601 or English (UTC).")
@click.option("--to", metavar="TIME", help="Only occurrences up to this time.")
@owner_options
@with_backend
@click.pass_context
def command(
    ctx: click.Context,
    *,
    from_: str | None,
    to: str | None,
    scheduler: str | None,
    owner: str | None,
    place: ConnectionTarget,
) -> None:
    """Check a ledger: every occurrence must have one verdict, and every run its occurrence.

    A server checks the schedules of the key's team, by default over the last day (see --from).

    Exit status: 0 no problem, 1 problems (each is listed), 2 bad input.
    """
    as_json = place.as_json
    from_at = None if from_ is None else _instant(from_, "--from", place.now, as_json=as_json)
    to_at = None if to is None else _instant(to, "--to", place.now, as_json=as_json)
    if from_at is not None and to_at is not None and to_at < from_at:
        message = f"--to {to} lies before --from {from_}"
        raise CliError(message, {"option": "--to", "value": to}, as_json=as_json)
    owned_by = owner_named(scheduler, owner, as_json=as_json)

    async def ask(backend: Backend) -> Report:
        with working("Reading the ledger", as_json=as_json, unit="rows") as work:
            found = await backend.ledger.verify(owned_by, from_at, to_at, work.counted)
        if owned_by is not None and not found.schedules and not found.problems:
            known = await backend.ledger.owners()
            message = f"Owner not found in this ledger: {owned_by}; it has {', '.join(known) or 'no owners'}"
            facts = {
                "option": "--scheduler" if owner is None else "--owner",
                "value": scheduler or owner,
                "known": known,
            }
            raise CliError(message, facts, as_json=as_json)
        return found

    report = place.ask(ask, read_only=True)
    if as_json:
        click.echo(json.dumps(_report_data(report), ensure_ascii=False))
    else:
        _print_report(report)
    ctx.exit(0 if report.clean else 1)


def _print_report(report: Report) -> None:
    looked = (
        f"{counted(report.schedules, 'schedule')}, {counted(report.occurrences, 'occurrence')}, "
        f"{counted(report.runs, 'run')}, {counted(report.spans, 'span')}"
    )
    if report.pruned:
        looked += f", counts of {counted(report.pruned, 'pruned day')}"
    if report.clean:
        print_text(Text.assemble(("whole", "bold green"), f"  {looked}"))
    else:
        total = len(report.problems) + report.more
        print_text(Text.assemble((counted(total, "problem"), "bold red"), f"  {looked}"))
    for problem in report.problems:
        print_text(Text.assemble(("  ✗ ", "red"), printable(problem.text)))
    if report.more:
        print_text(Text(f"  … and {report.more} more"))
    for remark in report.remarks:
        print_text(Text(f"  · {printable(remark)}", "dim"))


def _report_data(report: Report) -> dict[str, Any]:
    return {
        "whole": report.clean,
        "schedules": report.schedules,
        "occurrences": report.occurrences,
        "runs": report.runs,
        "spans": report.spans,
        "pruned_days": report.pruned,
        "problems": [
            {
                "kind": problem.kind,
                "text": problem.text,
                "task": problem.schedule,
                "managed_by": problem.managed_by,
                "at": None if problem.at is None else moment(problem.at).isoformat(),
            }
            for problem in report.problems
        ],
        "more_problems": report.more,
        "remarks": report.remarks,
    }


def _instant(text: str, option: str, now: datetime, *, as_json: bool) -> datetime:
    try:
        typed = read_time(text, now.astimezone(UTC))
        return typed.astimezone(UTC) if typed.tzinfo is not None else typed.replace(tzinfo=UTC)
    except (LanguageError, OverflowError) as error:
        facts = {"option": option, "value": text, "right": _RIGHT}
        reason = error.reason if isinstance(error, LanguageError) else error
        message = f'{option} "{text}" is not a time: {reason}'
        raise CliError(message, facts, (f"Right is {_RIGHT}",), as_json=as_json) from error
