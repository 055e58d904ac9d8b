"""Conversion of a crontab to a file of schedules, with remarks on what has no equivalent.

Lines are read as Vixie cron and its kin (Debian's cron, cronie) read them: settings hold for the lines below them, `%`
ends the command and begins its input, a day and a weekday that are both given mean either. What cron does beyond the
times is kept where it can be: runs may overlap, and local times that a clock change repeats or skips fire once.

Nothing is guessed. A line that has no exact equivalent is refused with its number and the reason, and is kept as a
comment in the result; settings that mean nothing here are noted. Lines that were commented out stay out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from noonbell.cron import parse, translate
from noonbell.errors import InvalidCronExpressionError, ScheduleInvalidError
from noonbell.planning.toml_writing import comment, table
from noonbell.schedules.fields import read_fields

_SETTING: Final = re.compile(r"""\s*(?:"(\w+)"|'(\w+)'|([A-Za-z_]\w*))\s*=\s*(.*?)\s*$""", re.ASCII)
_COLUMN_NAMES: Final = re.compile(r"#+\s*m(?:in(?:ute)?)?\s+h", re.IGNORECASE)
_PLAIN_SHELLS: Final = ("", "/bin/sh", "sh")
_SAID: Final = ("MAILTO", "MAILFROM")
_WRAPPERS: Final = frozenset(
    "sudo nice ionice flock env timeout bash sh zsh dash exec python python3 php perl ruby node test [ command".split()
)
_LONGEST_NAME: Final = 120
# cron sets no limit; this is the longest that a command may be given.
_LONGEST_RUN_SECONDS: Final = 30 * 86_400


class Remark(NamedTuple):
    """A remark about a line; `text` is the line."""

    line: int
    text: str
    reason: str

    @property
    def said(self) -> str:
        return f"line {self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Imported:
    """The TOML text, how many lines are in it, which were refused, and what else there is to know."""

    toml: str
    taken: int
    refused: list[Remark]
    notes: list[Remark]


class _RefusedError(Exception):
    """Why a line cannot be taken."""


@dataclass(slots=True)
class _Settings:
    """The settings of the lines so far."""

    env: dict[str, str] = field(default_factory=dict)
    shell: str = ""
    timezone: str | None = None
    random_minutes: int = 0


def import_crontab(text: str, *, source: str, name: str, timezone: str, user_field: bool = False) -> Imported:
    """Translate a crontab. `timezone` is that of the machine it comes from; CRON_TZ goes before it."""
    reader = _Reader(timezone, user_field=user_field)
    blocks = list(reader.blocks(text))
    head = [
        f"# Translated from {comment(source)}.",
        "# As under cron, runs of one job may overlap and a missed run is not made up for; local times that a clock",
        "# change repeats or skips fire once. A command begins in the folder of the engine and as its user: set cwd",
        "# where that matters. Commands run only where the engine's operator has enabled them.",
    ]
    parts = [
        "\n".join([*head, table("", {"name": name})]),
        table("defaults", {"timezone": timezone, "overlap": "allow", "dst": "once"}),
        *blocks,
    ]
    return Imported("\n\n".join(parts) + "\n", reader.taken, reader.refused, reader.notes)


class _Reader:
    def __init__(self, timezone: str, *, user_field: bool) -> None:
        self._timezone = timezone
        self._user_field = user_field
        self._settings = _Settings()
        self._ids: set[str] = set()
        self._names: set[str] = set()
        self.taken = 0
        self.refused: list[Remark] = []
        self.notes: list[Remark] = []

    def blocks(self, text: str) -> Iterator[str]:
        """A table for each line that is taken, and a comment for each that is not."""
        above: list[str] = []
        for number, raw in enumerate(text.split("\n"), 1):
            line = raw.strip()
            if line.startswith("#"):
                self._comment(number, line, above)
                continue
            setting = _SETTING.match(line)
            if not line or setting is not None:
                above.clear()
                if setting is not None:
                    self._set(number, line, setting)
                continue
            try:
                yield self._schedule(number, line, above)
            except _RefusedError as refused:
                self.refused.append(Remark(number, line, str(refused)))
                yield f"# NOT TRANSLATED, line {number}: {comment(line)}\n#   {comment(str(refused))}"
            above.clear()

    def _comment(self, number: int, line: str, above: list[str]) -> None:
        said = line.lstrip("#").strip()
        if _is_job(said):
            self.notes.append(Remark(number, line, "is commented out, so it was not taken"))
            above.clear()
        elif not re.search(r"\w", said) or _COLUMN_NAMES.match(line):
            above.clear()
        else:
            above.append(said)

    # --- settings -------------------------------------------------------------------------------------------------

    def _set(self, number: int, line: str, found: re.Match[str]) -> None:
        name = found[1] or found[2] or found[3]
        value = found[4]
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        settings = self._settings
        reason = ""
        if name == "CRON_TZ":
            settings.timezone = value
        elif name == "SHELL":
            settings.shell = value
        elif name == "RANDOM_DELAY":
            settings.random_minutes = int(value) if value.isdigit() and len(value) < 5 else 0
        elif name in _SAID:
            if value:
                reason = f"{name} is not translated: the output stays with the run; use notifications to inform people"
        else:
            settings.env[name] = value
            if name == "TZ":
                reason = "TZ is the clock of the commands, as in cron; the times are those of CRON_TZ or of the machine"
            elif "$" in value:
                reason = f"{name} is taken as it is written: cron expands nothing in it either"
        if reason:
            self.notes.append(Remark(number, line, reason))

    # --- a line ---------------------------------------------------------------------------------------------------

    def _schedule(self, number: int, line: str, above: list[str]) -> str:
        quiet_log = line.startswith("-")
        spec, user, command = _parted(line.removeprefix("-"), user_field=self._user_field)
        cron = self._cron(number, line, spec)
        if quiet_log:
            self.notes.append(
                Remark(number, line, "begins with -, which keeps cron's log quiet and means nothing here")
            )
        action = self._action(command)
        fields: dict[str, Any] = {"name": self._name(number, command, above), "cron": cron}
        if self._settings.timezone is not None and self._zone() != self._timezone:
            fields["timezone"] = self._zone()
        jitter = self._jitter(number, line, cron)
        if jitter:
            fields["jitter_seconds"] = jitter
        if user is not None:
            fields["tags"] = [f"user:{user}"]
            self.notes.append(Remark(number, line, f"ran as {user}; here it runs as the user of the engine"))
        checked = {key: value for key, value in fields.items() if key != "cron"}
        try:
            read_fields({**checked, "type": "cron", "spec": cron, "action": action}, None)
        except ScheduleInvalidError as error:
            raise _RefusedError(f"{error.field} {error.reason}") from error
        self.taken += 1
        self._names.add(fields["name"])
        schedule_id = self._id(command)
        env = action.pop("env", None)
        parts = [table(f"schedules.{schedule_id}", fields), table(f"schedules.{schedule_id}.action", action)]
        if env:
            parts.append(table(f"schedules.{schedule_id}.action.env", env))
        comments = [f"# {comment(one)}" for one in above]
        return "\n".join([*comments, f"# line {number}: {comment(line)}", *parts])

    def _cron(self, number: int, line: str, spec: str) -> str:
        try:
            posix = translate(spec)
        except InvalidCronExpressionError as error:
            where = "" if error.field == "expression" else f"the {error.field} field "
            reason = f"{where}{error.reason}"
            if "match together" in error.reason:
                reason += "; in cron a day or weekday field that begins with * makes it want both"
            elif "~" in spec:
                reason += "; a random time is not translated, jitter_seconds may be what is wanted"
            raise _RefusedError(reason) from error
        if re.search(r"(?:^|[ \t,])\d+/\d", spec):
            self.notes.append(Remark(number, line, f"{spec} is read as {posix}: a step from a number runs to the end"))
        return posix

    def _zone(self) -> str:
        name = self._settings.timezone or self._timezone
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise _RefusedError(f"its CRON_TZ {name} is not an IANA zone, such as Europe/Kyiv") from error
        return name

    def _action(self, command: str) -> dict[str, Any]:
        shell_command, stdin = _input(command)
        if not shell_command.strip():
            raise _RefusedError("has no command")
        settings = self._settings
        action: dict[str, Any] = {"kind": "command"}
        if settings.shell in _PLAIN_SHELLS:
            action |= {"shell": True, "command": shell_command}
        else:
            action["argv"] = [settings.shell, "-c", shell_command]
        if stdin is not None:
            action["stdin"] = stdin
        if settings.env.get("HOME", "").startswith("/"):
            action["cwd"] = settings.env["HOME"]  # where cron begins
        action["timeout_seconds"] = _LONGEST_RUN_SECONDS
        if settings.env:
            action["env"] = dict(settings.env)
        return action

    def _jitter(self, number: int, line: str, cron: str) -> int:
        delay = timedelta(minutes=self._settings.random_minutes)
        if delay and delay >= parse(cron).minimum_spacing():
            reason = f"RANDOM_DELAY of {self._settings.random_minutes} min is left out: it reaches into the next run"
            self.notes.append(Remark(number, line, reason))
            return 0
        return self._settings.random_minutes * 60

    # --- names ----------------------------------------------------------------------------------------------------

    def _name(self, number: int, command: str, above: list[str]) -> str:
        said = " ".join(above) or _input(command)[0].strip()
        if len(said) > _LONGEST_NAME:
            said = said[: _LONGEST_NAME - 1] + "…"
        return said if said not in self._names else f"{said} (line {number})"

    def _id(self, command: str) -> str:
        base = _program(command)
        chosen, number = base, 1
        while chosen in self._ids:
            number += 1
            chosen = f"{base}-{number}"
        self._ids.add(chosen)
        return chosen


def _parted(line: str, *, user_field: bool) -> tuple[str, str | None, str]:
    """The times, the user where lines have one, and the command."""
    times = 1 if line.startswith("@") else 5
    parts = line.split(None, times + user_field)
    if len(parts) < times + user_field + 1:
        needed = "the times, a user and a command" if user_field else "the times and a command"
        raise _RefusedError(f"is not a line of a crontab: {needed} are needed")
    return " ".join(parts[:times]), parts[times] if user_field else None, parts[-1]


def _is_job(said: str) -> bool:
    """Return whether a comment is a line that was switched off."""
    try:
        spec, _, _ = _parted(said, user_field=False)
        translate(spec)
    except (_RefusedError, InvalidCronExpressionError):
        return said.startswith("@reboot ")
    return True


def _input(command: str) -> tuple[str, str | None]:
    """The command up to its first bare `%`, and what it is given to read; after a backslash the sign is plain."""
    parts = [part.replace("\0", "%") for part in command.replace("\\%", "\0").split("%")]
    if len(parts) == 1:
        return parts[0], None
    given = "\n".join(parts[1:])
    return parts[0], given if given.endswith("\n") else f"{given}\n"


def _program(command: str) -> str:
    """A short id from the program that a command runs."""
    elsewhere = re.sub(r"\bcd\s+\S+", "", _input(command)[0])
    for word in re.split(r"[\s;&|(){}<>]+", elsewhere):
        base = word.rstrip("/").rpartition("/")[2]
        if base in _WRAPPERS or "=" in word or word.startswith(("-", "$", '"', "'")) or base.isdigit():
            continue
        slug = re.sub(r"[^a-z0-9]+", "-", base.partition(".")[0].lower()).strip("-")
        if slug:
            return slug[:60]
    return "job"
