"""Conversion of the plain values of a file to schedules and quiet hours in the form that is stored.

The checks are those of `Schedules.create` and `QuietHours`. They stop at the first error; here what they complain
about is noted with its place and replaced by a valid value, and the check goes on, so that one pass finds all problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Any, Final

import msgspec

from noonbell.core.records import ScheduleColumns
from noonbell.errors import QuietHoursInvalidError, ScheduleInvalidError
from noonbell.planning.places import NOTHING, Document, Path, undotted
from noonbell.schedules.fields import KNOWN, check_id, read_fields
from noonbell.timing import QuietHours

_TOP: Final = ("name", "defaults", "quiet_hours", "schedules")
# A key that gives the kind and the spec at once.
_SHORT: Final = {"cron": "cron", "every": "interval", "at": "one_shot"}
_FIELDS: Final = (*_SHORT, *(key for key in KNOWN if key not in ("schedule_id", "team")))
_NOT_SHARED: Final = (*_SHORT, "type", "spec", "name")
_DEFAULTS: Final = tuple(key for key in _FIELDS if key not in _NOT_SHARED)
_QUIET: Final = ("name", "windows")

# What takes the place of a bad value while the rest is looked at: nothing else can clash with these.
_ACTION: Final = {"kind": "callback", "name": "stand-in"}
_SPECS: Final = {"cron": "0 0 1 1 *", "interval": "3155760000", "one_shot": "9000-01-01T00:00"}
_WINDOW: Final = {"from": "00:00", "to": "01:00", "timezone": "UTC", "weekdays": [0], "dates": []}
_MOST_COMPLAINTS: Final = 50


class Declarations:
    """Reads a document for an owner; problems go to the document."""

    def __init__(self, document: Document, owner: str) -> None:
        self._document = document
        self._owner = owner
        self._refuse_unknown((), document.values, _TOP, "a file of schedules")
        self._defaults = self._table(("defaults",))
        self._refuse_defaults()
        self._quiet = self._table(("quiet_hours",))

    def _refuse_defaults(self) -> None:
        for key in list(self._defaults):
            if key in _NOT_SHARED:
                self._document.complain(("defaults", key), NOTHING, "is for each schedule to say", key=True)
                del self._defaults[key]
        self._refuse_unknown(("defaults",), self._defaults, _DEFAULTS, "the defaults")
        self._defaults = {key: value for key, value in self._defaults.items() if key in _DEFAULTS}

    # --- quiet hours ----------------------------------------------------------------------------------------------

    def quiet_hours(self) -> Iterator[tuple[str, str, str]]:
        """Id, name and document of each."""
        for key, value in self._quiet.items():
            path: Path = ("quiet_hours", key)
            if not self._is_table(path, value):
                continue
            self._check_id(path, key)
            self._refuse_unknown(path, value, _QUIET, "quiet hours")
            name = value.get("name", key)
            if not isinstance(name, str) or not name.strip():
                self._document.complain((*path, "name"), name, "must be a text that is not blank")
            windows = value.get("windows", NOTHING)
            if windows is NOTHING:
                self._document.complain((*path, "windows"), NOTHING, "is missing; it is a list of windows")
            elif not isinstance(windows, list):
                self._document.complain((*path, "windows"), windows, "must be a list of windows")
            else:
                read = [self._window((*path, "windows", number), window) for number, window in enumerate(windows)]
                document = QuietHours.from_json({"windows": read}).to_json()
                yield f"{self._owner}:{key}", str(name), msgspec.json.encode(document).decode()

    def _window(self, path: Path, written: Any) -> dict[str, Any]:
        if not self._is_table(path, written):
            return dict(_WINDOW)
        window: dict[str, Any] = dict(written)
        for _ in range(_MOST_COMPLAINTS):
            try:
                QuietHours.from_json({"windows": [window]})
            except QuietHoursInvalidError as error:
                self._note_window(path, window, error)
            else:
                break
        return window

    def _note_window(self, path: Path, window: dict[str, Any], error: QuietHoursInvalidError) -> None:
        inner = undotted(error.field)[2:]  # it begins with windows[0]
        if not inner:  # a key that is not known, or days that are missing
            key = error.value
            if isinstance(key, str) and key in window:
                known = [*_WINDOW, "valid_from", "valid_to"]
                near = [] if self._document.full else get_close_matches(key, known, n=1)
                reason = f"is not a known key; did you mean {near[0]}?" if near else error.reason
                self._document.complain((*path, key), NOTHING, reason, key=True)
                del window[key]
                return
            self._document.complain(path, NOTHING, error.reason)
            window.update(_WINDOW)
            return
        field = str(inner[0])
        value = NOTHING if field not in window else error.value
        self._document.complain((*path, *inner), value, error.reason)
        window.pop(field, None)
        if field in _WINDOW:
            window[field] = _WINDOW[field]
        if field == "dates" and not window.get("weekdays"):
            window["weekdays"] = _WINDOW["weekdays"]

    # --- schedules ------------------------------------------------------------------------------------------------

    def schedules(self) -> Iterator[tuple[str, ScheduleColumns, bool, str | None]]:
        """Id, columns, enabledness, and the POSIX expression where another dialect was typed."""
        names: dict[str, str] = {}
        for key, value in self._table(("schedules",)).items():
            path: Path = ("schedules", key)
            if not self._is_table(path, value):
                continue
            self._check_id(path, key)
            fields = self._fields(path, value)
            columns, understood = self._columns(path, key, fields)
            if columns.name in names:
                reason = f"is the name of {names[columns.name]} too; names of one file differ"
                self._document.complain((*path, "name"), columns.name, reason)
            names.setdefault(columns.name, key)
            yield key, columns, bool(fields.get("enabled", True)), understood

    def _fields(self, path: Path, value: Mapping[str, Any]) -> dict[str, Any]:
        """The fields as `Schedules.create` knows them, over the defaults."""
        self._refuse_unknown(path, value, _FIELDS, "a schedule")
        fields = {**self._defaults, **{key: value[key] for key in value if key in _FIELDS}}
        short = [key for key in _SHORT if key in value]
        for key in short:
            typed = fields.pop(key)
            others = [other for other in (*_SHORT, "spec") if other in value and other != key]
            if others:
                self._document.complain((*path, key), NOTHING, f"and {others[0]} cannot both be given", key=True)
                continue
            if fields.get("type", _SHORT[key]) != _SHORT[key]:
                reason = f"must be {_SHORT[key]} where {key} is given; leave it out"
                self._document.complain((*path, "type"), fields["type"], reason)
            fields["type"], fields["spec"] = _SHORT[key], typed
        if len(short) > 1:
            fields["type"], fields["spec"] = "cron", _SPECS["cron"]
        elif not short and "spec" not in value:
            reason = 'has no time; give it one of cron = "0 9 * * *", every = "15m" and at = "2026-12-01T09:00"'
            self._document.complain(path, NOTHING, reason)
            kind = fields.get("type")
            fields["type"] = kind if isinstance(kind, str) and kind in _SPECS else "cron"
            fields["spec"] = _SPECS[fields["type"]]
        if self._refuse_endless(path, fields.get("payload"), ("payload",)):
            del fields["payload"]
        policy_id = fields.get("quiet_hours_policy_id")
        if isinstance(policy_id, str) and policy_id in self._quiet:
            fields["quiet_hours_policy_id"] = f"{self._owner}:{policy_id}"
        return fields

    def _refuse_endless(self, path: Path, value: Any, inner: Path) -> bool:
        """Report every number that TOML has and JSON has not; return whether there is one."""
        if isinstance(value, float) and not isfinite(value):
            self._document.complain((*path, *inner), value, "is not a number that JSON can hold")
            return True
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        found = [self._refuse_endless(path, one, (*inner, key)) for key, one in parts]
        return any(found)

    def _columns(self, path: Path, key: str, fields: dict[str, Any]) -> tuple[ScheduleColumns, str | None]:
        for _ in range(_MOST_COMPLAINTS):
            try:
                return read_fields(fields, None, default_name=key)
            except ScheduleInvalidError as error:
                self._note_field(path, fields, error)
        columns = read_fields({"type": "cron", "spec": _SPECS["cron"], "action": _ACTION}, None).columns
        return columns, None

    def _note_field(self, path: Path, fields: dict[str, Any], error: ScheduleInvalidError) -> None:
        inner = undotted(error.field)
        field = str(inner[0])
        where = (*path, *inner)
        owner = self._document.values["schedules"][path[1]]
        if field == "spec":
            where = (*path, next((short for short in _SHORT if short in owner), "spec"))
        elif field not in owner and field in self._defaults:
            where = ("defaults", *inner)
        value = NOTHING if error.value is None and _missing(fields, inner) else error.value
        self._document.complain(where, value, error.reason)
        if field == "retry" and len(inner) > 1 and isinstance(fields.get("retry"), Mapping):
            fields["retry"] = {name: kept for name, kept in fields["retry"].items() if name != inner[1]}
            if error.reason.endswith("at_most_once is set"):
                del fields["at_most_once"]
        elif field == "action":
            fields["action"] = dict(_ACTION)
        elif field in ("type", "spec"):
            kind = fields.get("type")
            fields["type"] = kind if isinstance(kind, str) and kind in _SPECS else "cron"
            fields["spec"] = _SPECS[fields["type"]]
        else:
            fields.pop(field, None)

    # --- the shape of the file ------------------------------------------------------------------------------------

    def _table(self, path: Path) -> dict[str, Any]:
        found = self._document.values.get(str(path[0]), {})
        if not isinstance(found, dict):
            self._document.complain(path, found, "must be a table of keys and values")
            return {}
        return dict(found)

    def _is_table(self, path: Path, value: Any) -> bool:
        if isinstance(value, dict):
            return True
        self._document.complain(path, value, "must be a table of keys and values")
        return False

    def _check_id(self, path: Path, key: str) -> None:
        try:
            check_id(key)
        except ScheduleInvalidError as error:
            self._document.complain(path, key, f"is not a valid id: it {error.reason}", key=True)

    def _refuse_unknown(self, path: Path, table: Mapping[str, Any], known: tuple[str, ...], of: str) -> None:
        for key in table:
            if key in known:
                continue
            near = [] if self._document.full else get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            if key == "schedule_id":
                hint = "the id of a schedule is the name of its table"
            self._document.complain((*path, key), NOTHING, f"is not a key of {of}; {hint}", key=True)


def _missing(fields: Mapping[str, Any], path: Path) -> bool:
    found: Any = fields
    for part in path:
        if not isinstance(found, Mapping) or part not in found:
            return True
        found = found[part]
    return False
