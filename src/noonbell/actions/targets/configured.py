"""Targets that an operator declares in the settings of the service.

    [targets.bus]
    kind = "redis"
    url = "redis://:password@cache:6379/0"
    key = "events"

`read_targets` checks all of them without opening anything: every problem is reported with the path of its field, such
as `targets.bus.maxlen`, before the service starts. Addresses and headers, which may hold secrets, are never repeated.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.actions.egress import Egress
from noonbell.actions.targets.celery_tasks import CeleryTasks
from noonbell.actions.targets.http_endpoint import HttpEndpoint
from noonbell.actions.targets.postgres_outbox import PostgresOutbox
from noonbell.actions.targets.redis_stream import RedisStream
from noonbell.actions.targets.target import Target, masked
from noonbell.errors import ScheduleInvalidError, SettingsInvalidError

_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
# What may hold a password or a token.
_SECRETIVE: Final = frozenset({"url", "headers"})
_HERE: Final = "targets"


class _Kind(NamedTuple):
    needed: tuple[str, ...]
    options: tuple[str, ...]
    library: str
    extra: str
    make: Callable[[dict[str, Any], Egress | None], Target]


def _celery(options: dict[str, Any], egress: Egress | None) -> Target:
    del egress  # as for Redis and PostgreSQL: the address is the operator's own
    return CeleryTasks(options.pop("url"), **options)


def _postgres(options: dict[str, Any], egress: Egress | None) -> Target:
    del egress  # as above
    if options.get("notify") is False:  # a file has no word for None
        options["notify"] = None
    return PostgresOutbox(**options)


_KINDS: Final[Mapping[str, _Kind]] = {
    "redis": _Kind(
        ("url", "key"),
        ("group", "maxlen", "remember_seconds", "timeout"),
        "redis",
        "redis",
        lambda options, _: RedisStream(**options),
    ),
    "postgres": _Kind(
        ("url",),
        ("table", "notify", "timeout"),
        "asyncpg",
        "postgres",
        _postgres,
    ),
    "celery": _Kind(("url", "task"), ("queue", "arguments", "results", "timeout"), "celery", "celery", _celery),
    "http": _Kind(
        ("url",),
        ("headers", "timeout"),
        "aiohttp",
        "server",
        lambda options, egress: HttpEndpoint(**options, egress=egress),
    ),
}


class DeclaredTarget(msgspec.Struct, frozen=True):
    """A target as it was declared, and checked."""

    name: str
    kind: str
    options: Mapping[str, Any]

    @property
    def shown(self) -> str:
        """Return what every user may see of it: no passwords, no headers."""
        rest = (f"{key}={value}" for key, value in self.options.items() if key not in _SECRETIVE)
        return " ".join((f"{self.name}: {self.kind}", masked(self.options["url"]), *rest))

    @property
    def missing(self) -> str | None:
        """Return what has to be installed for it; None if it is installed."""
        kind = _KINDS[self.kind]
        return (
            None if importlib.util.find_spec(kind.library) else f'{kind.library}: pip install "noonbell[{kind.extra}]"'
        )

    def build(self, egress: Egress | None = None) -> Target:
        """The target itself; nothing is opened yet."""
        return _KINDS[self.kind].make(dict(self.options), egress)


def read_targets(value: object) -> tuple[DeclaredTarget, ...]:
    """All targets of a table, or of the same as JSON; raises SettingsInvalidError, whose source is left blank."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            raise SettingsInvalidError(_HERE, None, "", 'must be JSON such as {"bus": {"kind": "redis", …}}') from None
    if not isinstance(value, Mapping):
        raise SettingsInvalidError(_HERE, None, "", "must be a table of targets, [targets.NAME] for each")
    return tuple(_read(str(name), table) for name, table in value.items())


def _read(name: str, table: object) -> DeclaredTarget:
    here = f"{_HERE}.{name}"
    if not _NAME.fullmatch(name):
        raise SettingsInvalidError(_HERE, name, "", "must have names of letters, digits and _ . : -")
    if not isinstance(table, Mapping):
        raise SettingsInvalidError(here, None, "", "must be a table, with a kind")
    options = {str(key): given for key, given in table.items() if key != "kind"}
    kind = table.get("kind")
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise SettingsInvalidError(f"{here}.kind", kind, "", f"must be one of {', '.join(_KINDS)}")
    for key in options:
        if key not in (*known.needed, *known.options):
            near = difflib.get_close_matches(key, (*known.needed, *known.options), n=1)
            right = f'did you mean "{near[0]}"?' if near else f"known are {', '.join((*known.needed, *known.options))}"
            raise SettingsInvalidError(f"{here}.{key}", None, "", f"is not known; {right}")
    for key in known.needed:
        if key not in options:
            raise SettingsInvalidError(f"{here}.{key}", None, "", f"is needed for a target of the kind {kind}")
    declared = DeclaredTarget(name, str(kind), options)
    try:
        declared.build()
    except ScheduleInvalidError as error:
        shown = None if error.field in _SECRETIVE else error.value
        raise SettingsInvalidError(f"{here}.{error.field}", shown, "", error.reason) from None
    return declared
