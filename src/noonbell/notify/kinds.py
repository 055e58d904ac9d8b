"""Which kinds of channels there are: how each is checked, what of it is secret, and how it sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from noonbell.actions.secrets.references import Kind as Place
from noonbell.actions.secrets.references import Template
from noonbell.errors import ChannelInvalidError, SecretReferenceError
from noonbell.notify.apprise_channel import check_apprise, send_apprise
from noonbell.notify.chats import (
    check_discord,
    check_slack,
    check_telegram,
    send_discord,
    send_slack,
    send_telegram,
)
from noonbell.notify.mail import check_email, send_email
from noonbell.notify.sending import Send
from noonbell.notify.webhook import check_webhook, send_webhook

Path = tuple[str, ...]


class Kind(NamedTuple):
    """`secret` are the fields that are sealed, `templates` those that may refer to secrets, with how these are put in.

    Of a field that is an object, every value is meant.
    """

    check: Callable[[Mapping[str, Any]], dict[str, Any]]
    send: Send
    secret: tuple[str, ...]
    templates: Mapping[str, Place]


KINDS: Final[Mapping[str, Kind]] = {
    "email": Kind(check_email, send_email, ("password",), {"password": "text", "user": "text"}),
    "slack": Kind(check_slack, send_slack, ("url",), {"url": "url"}),
    "discord": Kind(check_discord, send_discord, ("url",), {"url": "url"}),
    "telegram": Kind(check_telegram, send_telegram, ("token",), {"token": "text"}),
    "webhook": Kind(check_webhook, send_webhook, ("headers",), {"url": "url", "headers": "header"}),
    "apprise": Kind(check_apprise, send_apprise, ("url",), {"url": "text"}),
}


def kind_named(name: object) -> Kind:
    if not isinstance(name, str) or name not in KINDS:
        raise ChannelInvalidError("kind", name, f"must be one of {', '.join(KINDS)}")
    return KINDS[name]


def check_config(kind: str, config: object) -> dict[str, Any]:
    """A config as a person writes it, in the form that is stored once its secrets are sealed."""
    if not isinstance(config, Mapping):
        raise ChannelInvalidError("config", None, "must be an object with the fields of its kind")
    checked = kind_named(kind).check(config)
    templates_in(kind, checked)
    return checked


def secrets_in(kind: str, config: Mapping[str, Any]) -> list[tuple[Path, str]]:
    """Return the secret values, each with its path."""
    return _leaves(KINDS[kind].secret, config)


def templates_in(kind: str, config: Mapping[str, Any]) -> list[tuple[Path, Template]]:
    """The values that may refer to secrets."""
    places = KINDS[kind].templates
    found = []
    for path, value in _leaves(tuple(places), config):
        place = f"config.{'.'.join(path)}"
        if "${" not in value:
            continue
        try:
            found.append((path, Template(value, places[path[0]], place)))
        except SecretReferenceError as error:
            raise ChannelInvalidError(place, None, error.reason) from None
    return found


def with_value(config: Mapping[str, Any], path: Path, value: str) -> dict[str, Any]:
    """The config with another value at a place."""
    head, *rest = path
    return {**config, head: value if not rest else with_value(config[head], tuple(rest), value)}


def _leaves(fields: tuple[str, ...], config: Mapping[str, Any]) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for field in fields:
        value = config.get(field)
        if isinstance(value, str):
            found.append(((field,), value))
        elif isinstance(value, Mapping):
            found.extend(((field, name), one) for name, one in value.items())
    return found
