"""The `command` action: a program, started without a shell unless one is asked for.

    {"kind": "command", "argv": ["backup", "--full"], "cwd": "/srv", "env": {"LEVEL": "9"}, "timeout_seconds": 600}
    {"kind": "command", "shell": true, "command": "backup --full | gzip > /srv/backup.gz"}

Commands are off until the operator turns them on: all of them, or those whose program is on a list. A list compares
`argv[0]` as it is written; "/bin/sh" on it allows a shell. It keeps schedules from naming other programs, not from
whatever an allowed program can be made to do by its arguments.

What is here is the description: how it is checked, and what the program is given. The environment is clean: PATH, HOME,
LANG and TZ of the engine, what the schedule sets, and NOONBELL_RUN_ID, NOONBELL_SCHEDULE_ID, NOONBELL_SCHEDULE_NAME,
NOONBELL_SCHEDULED_FOR and NOONBELL_ATTEMPT. How a program is started, watched and ended is in `process`.

Values of `env` and `stdin` may refer to secrets, ${secrets.NAME}; a text that does follows the rules of references, any
other is left as it is. In arguments they are refused: every user of the host can see those. Secrets are masked in what
is kept of the output.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from noonbell.actions.checking import encodable, known_only, text
from noonbell.actions.process import Program, run
from noonbell.actions.results import Finished, Prepared
from noonbell.actions.secrets.references import Template, loosely_named
from noonbell.actions.secrets.repository import missing_key
from noonbell.core.ids import run_id
from noonbell.core.instants import moment
from noonbell.core.records import Start, StoredSchedule
from noonbell.errors import CommandsOffError, ScheduleInvalidError, SecretReferenceError

if TYPE_CHECKING:
    from noonbell.actions.secrets.secrets import Secrets

EXAMPLE: Final = '{"kind": "command", "argv": ["backup", "--full"]}'
SHELL: Final = "/bin/sh"
DEFAULT_TIMEOUT_SECONDS: Final = 3_600
LONGEST_TIMEOUT_SECONDS: Final = 30 * 86_400
DEFAULT_OUTPUT: Final = 65_536
LARGEST_OUTPUT: Final = 1_048_576
INHERITED: Final = ("PATH", "HOME", "LANG", "TZ")

_KEYS: Final = ("kind", "argv", "shell", "command", "cwd", "env", "timeout_seconds", "stdin", "max_output")
_LONGEST: Final = 100_000
_MOST_ARGUMENTS: Final = 1_000
_OURS: Final = "NOONBELL_"
_ALLOWED: Final = re.compile(r"(.+?)((?::[A-Za-z_][A-Za-z0-9_]*)*)", re.DOTALL)


class Commands:
    """Which commands the operator allows: none (False), all (True), or those with one of these programs.

    A program with names behind it, `backup:LEVEL:MODE`, lets schedules set these environment variables, and no others:
    what a variable does to a program, only its operator knows (BASH_ENV, GCONV_PATH, PYTHONSTARTUP, ...).
    """

    def __init__(self, allowed: bool | Collection[str] = False) -> None:  # noqa: FBT001, FBT002 - what it says is yes or no
        if isinstance(allowed, str):
            raise ScheduleInvalidError("commands", allowed, "must be True, False or a list of programs")
        self._all = allowed is True
        self._programs: dict[str, frozenset[str]] = {}  # by program: the variables that schedules may set
        for entry in () if isinstance(allowed, bool) else allowed:
            parts = _ALLOWED.fullmatch(entry)
            program, names = parts.groups() if parts else ("", "")
            if not program or ("/" in program and not PurePosixPath(program).is_absolute()):
                right = "must be the name of a program or an absolute path; backup:LEVEL lets schedules set LEVEL"
                raise ScheduleInvalidError("commands", entry, right)
            self._programs[program] = self._programs.get(program, frozenset()).union(filter(None, names.split(":")))

    def allow(self, action: Mapping[str, Any]) -> bool:
        try:
            self.require(action)
        except CommandsOffError:
            return False
        return True

    def require(self, action: Mapping[str, Any]) -> None:
        """Raise CommandsOffError where this command must not run."""
        program = _program(action)
        if self._all:
            return
        if not self._programs:
            reason = "commands are off here; --command PROGRAM, or Schedules(..., commands=[programs]), allows them"
            raise CommandsOffError(program, reason)
        if program not in self._programs:
            raise CommandsOffError(program, f"the operator allows {', '.join(sorted(self._programs))}")
        allowed = self._programs[program]
        for name in action.get("env", {}):
            if name not in allowed:
                listed = f"only {', '.join(sorted(allowed))}" if allowed else "no variables"
                allows = f"--command {program}:{name} allows it"
                raise CommandsOffError(program, f"it sets {name}, and schedules may set {listed}; {allows}")


def _program(action: Mapping[str, Any]) -> str:
    return SHELL if action.get("shell") else str(action["argv"][0])


# --- checking ---------------------------------------------------------------------------------------------------------


def check_command(action: Mapping[str, Any]) -> dict[str, Any]:
    """The action in the form that is stored; what has its default is left out."""
    known_only(action, _KEYS, EXAMPLE)
    checked: dict[str, Any] = {"kind": "command"}
    shell = action.get("shell", False)
    if not isinstance(shell, bool):
        raise ScheduleInvalidError("action.shell", shell, "must be True or False")
    if shell:
        if "argv" in action:
            raise ScheduleInvalidError("action.argv", action["argv"], 'is for commands without a shell; use "command"')
        checked |= {"shell": True, "command": text("action.command", action.get("command"), longest=_LONGEST)}
    else:
        if "command" in action:
            right = 'needs "shell": true; without a shell use "argv", a list of texts'
            raise ScheduleInvalidError("action.command", action["command"], right)
        checked["argv"] = _argv(action.get("argv"))
    if action.get("cwd") is not None:
        checked["cwd"] = _folder(action["cwd"])
    if action.get("env"):
        checked["env"] = _env(action["env"])
    if action.get("stdin") is not None:
        checked["stdin"] = _plain("action.stdin", action["stdin"])
    _check_references(checked)
    timeout = _timeout(action.get("timeout_seconds", DEFAULT_TIMEOUT_SECONDS))
    if timeout != DEFAULT_TIMEOUT_SECONDS:
        checked["timeout_seconds"] = timeout
    output = action.get("max_output", DEFAULT_OUTPUT)
    if type(output) is not int or not 0 <= output <= LARGEST_OUTPUT:
        right = f"must be a number of bytes from 0 to {LARGEST_OUTPUT}"
        raise ScheduleInvalidError("action.max_output", output, right)
    if output != DEFAULT_OUTPUT:
        checked["max_output"] = output
    return checked


def _check_references(action: Mapping[str, Any]) -> None:
    for key in ("argv", "command", "cwd"):
        if named := loosely_named(action.get(key)):
            right = f"refers to the secret {min(named)}, which every user of the host could see; use env or stdin"
            raise ScheduleInvalidError(f"action.{key}", action[key], right)
    for place, written in _referring(action):
        try:
            Template(written, "text", place)
        except SecretReferenceError as error:
            raise ScheduleInvalidError(place, written, error.reason) from error


def _referring(action: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts that name secrets, each with its place."""
    texts = {f"action.env.{name}": given for name, given in action.get("env", {}).items()}
    for place, written in (*texts.items(), ("action.stdin", action.get("stdin"))):
        if loosely_named(written):
            yield place, written


def _argv(value: object) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ScheduleInvalidError("action.argv", value, 'must be a list of texts, such as ["backup", "--full"]')
    if len(value) > _MOST_ARGUMENTS:
        raise ScheduleInvalidError("action.argv", value, f"must be at most {_MOST_ARGUMENTS} texts")
    text("action.argv[0]", value[0])
    return [_plain(f"action.argv[{place}]", part) for place, part in enumerate(value)]


def _plain(field: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise ScheduleInvalidError(field, value, f"must be a text of at most {_LONGEST} characters")
    return encodable(field, value)


def _folder(value: object) -> str:
    folder = text("action.cwd", value, longest=4_096)
    if not PurePosixPath(folder).is_absolute():
        raise ScheduleInvalidError("action.cwd", value, "must be an absolute path")
    return folder


def _env(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ScheduleInvalidError("action.env", value, 'must be an object of texts, such as {"LEVEL": "9"}')
    for name, given in value.items():
        if not isinstance(name, str) or not name or "=" in name or name.startswith(_OURS):
            right = f"must be named by a text without '=' that does not begin with {_OURS}"
            raise ScheduleInvalidError(f"action.env.{name}", given, right)
        encodable(f"action.env.{name}", name)
        _plain(f"action.env.{name}", given)
    return dict(value)


def _timeout(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= LONGEST_TIMEOUT_SECONDS:
        right = f"must be a number of seconds above 0, at most {LONGEST_TIMEOUT_SECONDS} (30 days)"
        raise ScheduleInvalidError("action.timeout_seconds", value, right)
    return value


# --- running ----------------------------------------------------------------------------------------------------------


def prepare_command(
    commands: Commands, action: Mapping[str, Any], stored: StoredSchedule, start: Start, secrets: Secrets | None = None
) -> Prepared:
    commands.require(action)
    given = {
        "NOONBELL_RUN_ID": run_id(stored.schedule_id, start.kind, start.run_for),
        "NOONBELL_SCHEDULE_ID": stored.schedule_id,
        "NOONBELL_SCHEDULE_NAME": stored.columns.name,
        "NOONBELL_SCHEDULED_FOR": moment(start.run_for).isoformat(),
        "NOONBELL_ATTEMPT": str(start.attempt),
    }
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    program = Program(
        argv=(SHELL, "-c", action["command"]) if action.get("shell") else tuple(action["argv"]),
        env=inherited | action.get("env", {}) | given,
        cwd=action.get("cwd"),
        stdin=action.get("stdin"),
        timeout_seconds=action.get("timeout_seconds", DEFAULT_TIMEOUT_SECONDS),
        max_output=action.get("max_output", DEFAULT_OUTPUT),
    )
    return Prepared(partial(_run, program, dict(_referring(action)), secrets, stored.team), is_async=True)


async def _run(program: Program, referring: Mapping[str, str], secrets: Secrets | None, team: str) -> Finished:
    if secrets is None or not secrets.usable:
        if referring:
            raise missing_key()
        return Finished(detail=await run(program))
    templates = {place: Template(written, "text", place) for place, written in referring.items()}
    names = frozenset().union(*(template.names for template in templates.values()))
    values = await secrets.resolve(team, names)
    filled = {place: template.fill(values) for place, template in templates.items()}
    env = {name: filled.get(f"action.env.{name}", given) for name, given in program.env.items()}
    stdin = filled.get("action.stdin", program.stdin)
    masker = secrets.masker(team)
    return Finished(detail=await run(replace(program, env=env, stdin=stdin), masker))
