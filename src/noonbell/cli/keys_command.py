"""`noonbell keys`: makes the file of master keys, and puts another key on top of it. No key is ever printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from noonbell.actions.secrets.keys import VARIABLE, add_key, create_key_file
from noonbell.cli.cli_errors import CliError, HintingCommand, SpeakingGroup
from noonbell.cli.secret_options import json_option
from noonbell.errors import MasterKeyError

_EXAMPLES: Final = """\b
noonbell keys new master.keys
noonbell keys add master.keys
"""
_file = click.argument("file", type=click.Path(path_type=Path))


@click.group("keys", cls=SpeakingGroup, epilog=_EXAMPLES)
def command() -> None:
    """Make the master keys that secrets are sealed with.

    Whoever has the keys and the database can read the secrets; without the keys nobody can. Keep a copy of the file
    apart
    from the database.
    """


@command.command("new", cls=HintingCommand)
@_file
@json_option
def new(file: Path, *, as_json: bool) -> None:
    """Make FILE with a fresh master key, readable by its owner alone. A file that exists is left alone."""
    try:
        create_key_file(file)
    except MasterKeyError as error:
        raise CliError(str(error), {"file": str(file)}, as_json=as_json) from error
    if as_json:
        click.echo(json.dumps({"file": str(file), "newest": 1, "versions": [1]}))
        return
    click.echo(f"Master key 1 is in {file}, which only its owner can read.")
    click.echo(f"Keep a copy apart from the database. Where a file does not fit, its lines may stand in {VARIABLE}.")


@command.command("add", cls=HintingCommand)
@_file
@json_option
def add(file: Path, *, as_json: bool) -> None:
    """Put a fresh master key on top of those in FILE. It seals new secrets; the older keys still open theirs."""
    try:
        ring = add_key(file)
    except MasterKeyError as error:
        raise CliError(str(error), {"file": str(file)}, as_json=as_json) from error
    if as_json:
        click.echo(json.dumps({"file": str(file), "newest": ring.newest, "versions": list(ring.versions)}))
        return
    click.echo(f"Master key {ring.newest} is in {file}, above {len(ring.versions) - 1} older.")
