"""The secrets of a channel's config: sealed when it is written, opened when it is used, never shown.

A secret value that a user types is put among the secrets of the channel's team under a name of its own, and a
reference takes its place; it is rotated and masked like any other then. A reference that a user types stays.
"""

from __future__ import annotations

import secrets as randomness
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from noonbell.actions.secrets.references import Template
from noonbell.actions.secrets.repository import missing_key
from noonbell.actions.secrets.secrets import Secrets
from noonbell.errors import ChannelInvalidError, SecretInvalidError
from noonbell.notify.kinds import secrets_in, templates_in, with_value
from noonbell.notify.notice_records import ChannelBody

_OWN_PREFIX: Final = "CHANNEL_"
HIDDEN: Final = "***"


class Sealed(NamedTuple):
    config: dict[str, Any]
    names: tuple[str, ...]  # of the secrets that were put


async def seal(secrets: Secrets | None, team: str, kind: str, config: Mapping[str, Any]) -> Sealed:
    """The config with references in place of secret values.

    Raises:
        MasterKeyMissingError: there is a secret value, and no master key to seal it with.
    """
    sealed, names = dict(config), []
    try:
        for path, value in secrets_in(kind, config):
            field = f"config.{'.'.join(path)}"
            template = Template(value, "text", field)
            if template.names:
                continue
            if secrets is None:
                raise missing_key()
            name = f"{_OWN_PREFIX}{randomness.token_hex(8)}"
            try:
                await secrets.put(team, name, template.fill({}))
            except SecretInvalidError as error:
                raise ChannelInvalidError(field, None, error.reason) from None
            names.append(name)
            sealed = with_value(sealed, path, f"${{secrets.{name}}}")
    except BaseException:
        await drop(secrets, team, names)
        raise
    return Sealed(sealed, tuple(names))


async def drop(secrets: Secrets | None, team: str, names: Iterable[str]) -> None:
    """Forget secrets that no channel refers to any more."""
    if secrets is not None:
        for name in names:
            await secrets.delete(team, name)


async def opened(secrets: Secrets | None, team: str, body: ChannelBody) -> dict[str, Any]:
    """The config with values in place of references.

    Raises:
        SecretUnknownError: a name that does not exist; nothing is sent then.
        MasterKeyMissingError: no master key is configured.
    """
    templates = templates_in(body.kind, body.config)
    names: set[str] = set().union(*(template.names for _, template in templates))
    if names and secrets is None:
        raise missing_key()
    values = await secrets.resolve(team, names) if secrets is not None else {}
    config = dict(body.config)
    for path, template in templates:
        config = with_value(config, path, template.fill(values))
    return config


def shown(body: ChannelBody) -> dict[str, Any]:
    """Return the config without its secrets, as every user may see it."""
    config = dict(body.config)
    for path, value in secrets_in(body.kind, config):
        if any(f"${{secrets.{name}}}" == value for name in body.sealed):
            config = with_value(config, path, HIDDEN)
    return config
