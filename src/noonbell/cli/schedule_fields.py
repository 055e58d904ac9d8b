"""The options of `schedules add` and `schedules edit`, and the fields of a schedule for them.

WHEN is English or any dialect of cron. It is parsed here, so that its interpretation can be shown before it is sent.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import click

from noonbell.cli import spec_input as readings
from noonbell.cli.completion_sources import quiet_hours_ids
from noonbell.cli.connection_target import ConnectionTarget
from noonbell.cli.spec_input import Reading, complete_zone

_Function = TypeVar("_Function", bound=Callable[..., Any])

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_ACTIONS: Final = ("http", "command", "shell", "callback", "message", "action")


def action_options(function: _Function) -> _Function:
    """Add the options of an action: one of --http, --command, --shell, --callback, --message and --action."""
    for decorate in (
        click.option("--action", metavar="JSON", help="The whole action, in the format of the API."),
        click.option("--message", metavar="TARGET", help="Send --payload as an event to this target."),
        click.option("--callback", metavar="NAME", help="Call the function registered under this name."),
        click.option("--shell", metavar="TEXT", help="Run this text with /bin/sh."),
        click.option("--command", metavar="TEXT", help="Start this program, quoted as in a shell; no shell is used."),
        click.option("--timeout", type=float, metavar="SECONDS", help="How long --http or --command may take."),
        click.option("--body", metavar="TEXT", help="The body for --http; JSON is sent as JSON."),
        click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="For --http; repeatable."),
        click.option("--method", type=click.Choice(METHODS, case_sensitive=False), help="For --http; default GET."),
        click.option("--http", metavar="URL", help="Send a request to this address."),
    ):
        function = decorate(function)
    return function


def policy_options(function: _Function) -> _Function:
    """Add the options for all other fields of a schedule."""
    for decorate in (
        click.option("--at-most-once/--at-least-once", default=None, help="After a crash: never repeat, or repeat."),
        click.option("--jitter", "jitter_seconds", type=float, metavar="SECONDS", help="Delay starts by up to this."),
        click.option("--until", "end_at", metavar="TIME", help="No occurrence after this time: ISO 8601 or English."),
        click.option(
            "--since", "start_at", metavar="TIME", help="No occurrence before this time: ISO 8601 or English."
        ),
        click.option("--payload", metavar="JSON", help="Given to a callback, a command or a message."),
        click.option("--tag", "tags", multiple=True, help="Repeatable."),
        click.option(
            "--quiet",
            metavar="ID",
            shell_complete=quiet_hours_ids,
            help="Do not run in these quiet hours (noonbell quiet).",
        ),
        click.option("--retry-delay", type=float, metavar="SECONDS", help="Before the second attempt; then doubling."),
        click.option("--attempts", type=click.IntRange(1), metavar="N", help="Try a failing run so often. Default: 1."),
        click.option(
            "--overlap", type=click.Choice(["coalesce", "skip", "allow"]), help="If an occurrence is due during a run."
        ),
        click.option("--cap", "catch_up_cap", type=click.IntRange(1, 1_000), metavar="N", help="For run_all_capped."),
        click.option(
            "--catch-up",
            "catch_up_policy",
            type=click.Choice(["skip", "run_once", "run_all_capped"]),
            help="What to do about missed occurrences.",
        ),
        click.option("--dst", type=click.Choice(["literal", "once"]), help="At clock changes: see noonbell next."),
        click.option("--tz", metavar="ZONE", shell_complete=complete_zone, help="IANA zone, unless WHEN names one."),
    ):
        function = decorate(function)
    return function


def read_when(when: str, tz: str | None, place: ConnectionTarget) -> tuple[Reading, dict[str, Any]]:
    """Return the meaning of WHEN, and its fields. Without a zone in WHEN or --tz, the host's zone is used."""
    reading = readings.read(when, tz, place.now, as_json=place.as_json)
    fields: dict[str, Any] = dict(reading.understood.fields)
    fields["timezone"] = str(reading.zone)
    if fields["timezone"] == "local":
        message = "The host's time zone has no name; pass one with --tz, such as Europe/Kyiv"
        raise place.cli_error(message, {"option": "--tz"})
    return reading, fields


def policies(given: dict[str, Any], place: ConnectionTarget) -> dict[str, Any]:
    """Return the fields of the given policies."""
    plain = (
        "dst", "catch_up_policy", "catch_up_cap", "overlap", "start_at", "end_at", "jitter_seconds", "at_most_once",
    )  # fmt: skip
    found: dict[str, Any] = {name: given[name] for name in plain if given.get(name) is not None}
    if given.get("tags"):
        found["tags"] = list(given["tags"])
    if given.get("quiet") is not None:
        found["quiet_hours_policy_id"] = None if given["quiet"] in ("", "none") else given["quiet"]
    if given.get("payload") is not None:
        found["payload"] = read_json("--payload", given["payload"], place)
    retry = {"attempts": given.get("attempts"), "delay_seconds": given.get("retry_delay")}
    if any(value is not None for value in retry.values()):
        found["retry"] = {name: value for name, value in retry.items() if value is not None}
    for name in ("start_at", "end_at"):
        if found.get(name) == "none":
            found[name] = None
    return found


def action(given: dict[str, Any], place: ConnectionTarget, *, needed: bool) -> dict[str, Any] | None:
    """Return the given action; None if none was given and none is needed."""
    named = [name for name in _ACTIONS if given.get(name) is not None]
    if len(named) > 1:
        message = f"A schedule has one action; --{named[0]} and --{named[1]} exclude each other"
        raise place.cli_error(message, {"options": [f"--{name}" for name in named]})
    if not named:
        stray = next((name for name in ("method", "headers", "body", "timeout") if given.get(name)), None)
        if stray is not None:
            option = "--header" if stray == "headers" else f"--{stray}"
            raise place.cli_error(f"{option} requires --http", {"option": option})
        if needed:
            message = "The action is missing: pass --http URL, --command TEXT, --callback NAME or --message TARGET"
            raise place.cli_error(message, {"options": [f"--{name}" for name in _ACTIONS]})
        return None
    return _ACTION[named[0]](given, place)


def _http(given: dict[str, Any], place: ConnectionTarget) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": "http", "url": given["http"]}
    if given.get("method"):
        made["method"] = str(given["method"]).upper()
    if given.get("headers"):
        made["headers"] = dict(_header(one, place) for one in given["headers"])
    if given.get("body") is not None:
        made["body"] = _body(given["body"])
    if given.get("timeout") is not None:
        made["timeout"] = {"total": given["timeout"]}
    return made


def _header(text: str, place: ConnectionTarget) -> tuple[str, str]:
    name, sign, value = text.partition(":")
    if not sign or not name.strip():
        message = f'--header "{text}" must be NAME:VALUE, such as "X-Team: ops"'
        raise place.cli_error(message, {"option": "--header", "value": text})
    return name.strip(), value.strip()


def _body(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {"text": text}
    return {"json": value} if isinstance(value, dict | list) else {"text": text}


def _command(given: dict[str, Any], place: ConnectionTarget) -> dict[str, Any]:
    try:
        argv = shlex.split(given["command"])
    except ValueError as error:
        message = f"--command cannot be split into words: {error}; quote it as in a shell"
        raise place.cli_error(message, {"option": "--command", "value": given["command"]}) from None
    return _timed({"kind": "command", "argv": argv}, given)


def _timed(made: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    return made if given.get("timeout") is None else {**made, "timeout_seconds": given["timeout"]}


def _whole(given: dict[str, Any], place: ConnectionTarget) -> dict[str, Any]:
    value = read_json("--action", given["action"], place)
    if not isinstance(value, dict):
        message = '--action must be an object, such as {"kind": "http", "url": "https://example.com/"}'
        raise place.cli_error(message, {"option": "--action"})
    return cast("dict[str, Any]", value)


def read_json(option: str, text: str, place: ConnectionTarget) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise place.cli_error(f"{option} is not JSON: {error}", {"option": option, "value": text}) from None


_ACTION: Final[dict[str, Callable[[dict[str, Any], ConnectionTarget], dict[str, Any]]]] = {
    "http": _http,
    "command": _command,
    "shell": lambda given, _: _timed({"kind": "command", "shell": True, "command": given["shell"]}, given),
    "callback": lambda given, _: {"kind": "callback", "name": given["callback"]},
    "message": lambda given, _: {"kind": "message", "to": given["message"]},
    "action": _whole,
}
