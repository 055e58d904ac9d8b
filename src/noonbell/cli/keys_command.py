"""`noonbell keys`: creates the file of master keys, and adds keys to it. No key is ever printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from noonbell.actions.secrets.keys import VARIABLE, add_key, create_key_file
from noonbell.cli.cli_errors import CliError, HintingCommand, HintingGroup
from noonbell.cli.secret_options import json_option
from noonbell.errors import MasterKeyError

_EXAMPLES: Final = """\b
noonbell keys new master.keys
noonbell keys add master.keys
"""
_file = click.argument("file", type=click.Path(path_type=Path))


@click.group("keys", cls=HintingGroup, epilog=_EXAMPLES)
def command() -> None:
    """Create the master keys that encrypt secrets.

    The keys and the database together give access to the secrets; without the keys the secrets are lost. Keep a copy
    of the file apart from the database.
    """


@command.command("new", cls=HintingCommand)
@_file
@json_option
def new(file: Path, *, as_json: bool) -> None:
    """Create FILE with a new master key, readable by its owner only. An existing file is not changed."""
    try:
        create_key_file(file)
    except MasterKeyError as error:
        raise CliError(str(error), {"file": str(file)}, as_json=as_json) from error
    if as_json:
        click.echo(json.dumps({"file": str(file), "newest": 1, "versions": [1]}))
        return
    click.echo(f"Master key 1 is in {file}, which only its owner can read.")
    click.echo(f"Keep a copy apart from the database. Instead of a file, {VARIABLE} may hold its lines.")


@command.command("add", cls=HintingCommand)
@_file
@json_option
def add(file: Path, *, as_json: bool) -> None:
    """Add a new master key to FILE. It encrypts new secrets; the older keys still decrypt the existing ones."""
    try:
        ring = add_key(file)
    except MasterKeyError as error:
        raise CliError(str(error), {"file": str(file)}, as_json=as_json) from error
    if as_json:
        click.echo(json.dumps({"file": str(file), "newest": ring.newest, "versions": list(ring.versions)}))
        return
    click.echo(f"Master key {ring.newest} is in {file}, above {len(ring.versions) - 1} older.")
