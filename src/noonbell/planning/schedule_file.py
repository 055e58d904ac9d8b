"""A file of declared schedules, read and checked.

    name = "billing"                       # whose schedules these are: managed_by is file:billing

    [defaults]
    timezone = "Europe/Kyiv"

    [quiet_hours.nights]
    windows = [{ weekdays = [1, 2, 3, 4, 5], from = "22:00", to = "06:00", timezone = "Europe/Kyiv" }]

    [schedules.report]
    cron = "0 9 * * 1-5"                   # or every = "15m", or at = 2026-12-01T09:00:00
    quiet_hours_policy_id = "nights"
    action = { kind = "callback", name = "report" }

The fields are those of `Schedules.create`. A file says everything about its schedules: what is left out has its
default. Each problem has its line and column, and all are reported at once (ScheduleFileInvalidError). Whether the
store agrees, and whether a time has passed, is for `plan`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Final, Literal

import msgspec

from noonbell.core.records import ScheduleColumns
from noonbell.planning.declared_values import Declarations
from noonbell.planning.places import NOTHING, Document, Place

Format = Literal["toml", "yaml"]

FORMATS: Final[Mapping[str, Format]] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LARGEST_FILE: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A schedule of a file, in the form that is stored. `understood`: what another cron dialect was read as."""

    schedule_id: str
    columns: ScheduleColumns
    enabled: bool
    understood: str | None


@dataclass(frozen=True, slots=True)
class DeclaredQuietHours:
    """Quiet hours of a file; their id in the store begins with the owner, so that no other can have it."""

    policy_id: str
    name: str
    document: str


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """A whole file without problems."""

    name: str
    document: Document
    schedules: Mapping[str, DeclaredSchedule]
    quiet_hours: Mapping[str, DeclaredQuietHours]

    @property
    def owner(self) -> str:
        return f"file:{self.name}"

    @property
    def fingerprint(self) -> str:
        """Equal for two files exactly when they declare the same."""
        facts = [self.name, [*self.schedules.values()], [*self.quiet_hours.values()]]
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]


def load(path: FilePath | str, *, format: Format | None = None) -> ScheduleFile:  # noqa: A002 - the word people use
    """Read a file; its format is that of its ending unless one is given. Raises ScheduleFileInvalidError."""
    path = FilePath(path)
    with path.open("rb") as file:
        found = file.read(_LARGEST_FILE + 1)
    chosen = format or FORMATS.get(path.suffix.lower())
    document = Document(str(path))
    if chosen is None:
        document.complain((), NOTHING, "has no ending .toml, .yaml or .yml; say which it is with the format")
        raise document.invalid()
    return loads(found, format=chosen, source=str(path), name=path.stem)


def loads(text: str | bytes, *, format: Format, source: str = "<text>", name: str | None = None) -> ScheduleFile:  # noqa: A002 - as above
    """Read a text. `name` is the owner's where the text names none."""
    document = _document(text, format, source)
    if document.problems and not document.values:  # it could not be read at all
        raise document.invalid()
    chosen = document.values.get("name", name)
    if not isinstance(chosen, str) or not _NAME.fullmatch(chosen):
        reason = 'must be letters, digits, ".", "_" and "-", such as name = "billing"'
        document.complain(("name",), NOTHING if chosen is None else chosen, reason)
        chosen = "unnamed"
    declarations = Declarations(document, f"file:{chosen}")
    quiet = [DeclaredQuietHours(*one) for one in declarations.quiet_hours()]
    schedules = [DeclaredSchedule(*one) for one in declarations.schedules()]
    if document.problems:
        raise document.invalid()
    return ScheduleFile(
        chosen,
        document,
        {one.schedule_id: one for one in schedules},
        {one.policy_id: one for one in quiet},
    )


def _document(text: str | bytes, format: Format, source: str) -> Document:  # noqa: A002 - as above
    document = Document(source)
    if len(text) > _LARGEST_FILE:
        document.complain((), NOTHING, f"is larger than {_LARGEST_FILE // 1024 // 1024} MiB")
        return document
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8", "replace")
        document.places[()] = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        document.complain((), NOTHING, f"is not UTF-8: byte 0x{error.object[error.start]:02x}")
        return document
    if format == "toml":
        from noonbell.planning.toml_document import read_toml  # noqa: PLC0415 - only what is asked for

        return read_toml(text, source)
    from noonbell.planning.yaml_document import read_yaml  # noqa: PLC0415 - as above

    return read_yaml(text, source)
