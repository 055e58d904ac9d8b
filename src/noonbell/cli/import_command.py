"""`noonbell import`: files of schedules, translated from the formats of other programs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

import click

from noonbell.cli.cli_errors import CliError, HintingCommand, HintingGroup, printable
from noonbell.cli.progress import working
from noonbell.cli.secret_options import json_option
from noonbell.cli.typed_times import find_zone

_EXAMPLES: Final = """\b
crontab -l | noonbell import crontab - -o schedules.toml
noonbell import crontab /etc/crontab --user-field
"""
_LARGEST: Final = 4 * 1024 * 1024


@click.group("import", cls=HintingGroup)
def command() -> None:
    """Create a file of schedules from the file of another program."""


@command.command("crontab", cls=HintingCommand, epilog=_EXAMPLES)
@click.argument("file", metavar="FILE")
@click.option("-o", "--output", "out", metavar="OUT", help="Write to this file, which must not exist yet.")
@click.option("--user-field", is_flag=True, help="Lines name a user before the command, as in /etc/crontab.")
@click.option("--tz", metavar="ZONE", help="IANA zone of the machine it comes from. Default: the host's.")
@click.option("--name", metavar="NAME", help="Who owns the schedules. Default: from the file's name.")
@json_option
@click.pass_context
def crontab(
    ctx: click.Context,
    *,
    file: str,
    out: str | None,
    user_field: bool,
    tz: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Translate the crontab FILE (- for stdin) into a file that `noonbell plan` and `noonbell apply` take.

    Lines without an exact equivalent are refused: they are printed to stderr and kept as comments in the result. Exit
    status: 0 all was translated, 1 some lines were not, 2 bad input.
    """
    from noonbell.planning.crontab import import_crontab  # noqa: PLC0415 - the help of the group needs none of it

    zone = str(find_zone(tz, as_json=as_json))
    source = "stdin" if file == "-" else file
    text = _read(file, as_json=as_json)
    with working("Translating", as_json=as_json):
        found = import_crontab(
            text, source=source, name=name or _named(out or file), timezone=zone, user_field=user_field
        )
    if out is not None:
        _write(out, found.toml, as_json=as_json)
    if as_json:
        document = {
            "translated": found.taken,
            "file": out,
            "toml": found.toml if out is None else None,
            "notes": [note.said for note in found.notes],
            "refused": [{"reason": one.said, "line": one.text} for one in found.refused],
        }
        click.echo(json.dumps(document, ensure_ascii=False))
        ctx.exit(1 if found.refused else 0)
    if out is None:
        click.echo(found.toml, nl=False)
    for note in found.notes:
        click.echo(f"note: {printable(note.said)}", err=True)
    for refused in found.refused:
        click.echo(f"not translated: {printable(refused.said)}\n    {printable(refused.text)}", err=True)
    lines = "line" if found.taken == 1 else "lines"
    click.echo(f"{found.taken} {lines} translated, {len(found.refused)} not", err=True)
    ctx.exit(1 if found.refused else 0)


def _read(file: str, *, as_json: bool) -> str:
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(_LARGEST + 1)
        else:
            with Path(file).open("rb") as opened:
                raw = opened.read(_LARGEST + 1)
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}", {"file": file}, as_json=as_json) from error
    if len(raw) > _LARGEST:
        raise CliError(f"{file} is larger than any crontab", {"file": file}, as_json=as_json)
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise CliError(f"{file}:{line}: is not UTF-8", {"file": file, "line": line}, as_json=as_json) from error


def _write(out: str, text: str, *, as_json: bool) -> None:
    try:
        with Path(out).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise CliError(f"{out} already exists; nothing was written", {"file": out}, as_json=as_json) from error
    except OSError as error:
        raise CliError(f"{out} cannot be written: {error.strerror}", {"file": out}, as_json=as_json) from error


def _named(file: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(file).stem).strip("-._")
    return stem[:100] or "crontab"
