"""Quiet hours as a document: what is read and written, and how an error says where it is."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from noonbell.errors import QuietHoursInvalidError
from noonbell.timing import QuietHours, Window

NIGHT: dict[str, Any] = {"weekdays": [1, 2, 3, 4, 5], "from": "22:00", "to": "06:00", "timezone": "Europe/Kyiv"}
WHOLE: dict[str, Any] = {
    "weekdays": [0, 6],
    "dates": ["2026-12-25", "2027-01-01"],
    "from": "22:00:30",
    "to": "06:00",
    "timezone": "America/New_York",
    "valid_from": "2026-01-01",
    "valid_to": "2027-12-31",
}


def reason_of(call: Callable[[], object]) -> str:
    """The interpreter's own reason, whose words differ between the versions of Python."""
    with pytest.raises(ValueError, match=r"must be in|out of range") as raised:
        call()
    return str(raised.value)


_NO_SUCH_DAY = reason_of(lambda: date(2026, 2, 30))


def test_a_document_says_what_the_windows_say() -> None:
    policy = QuietHours.from_json({"windows": [WHOLE]})
    assert policy.windows == (
        Window(
            weekdays=frozenset({0, 6}),
            dates=frozenset({date(2026, 12, 25), date(2027, 1, 1)}),
            from_time=time(22, 0, 30),
            to_time=time(6),
            zone=ZoneInfo("America/New_York"),
            valid_from=date(2026, 1, 1),
            valid_to=date(2027, 12, 31),
        ),
    )


def test_a_document_comes_back_as_it_was() -> None:
    document = {"windows": [NIGHT, WHOLE]}
    assert QuietHours.from_json(document).to_json() == document
    assert json.loads(json.dumps(QuietHours.from_json(document).to_json())) == document


def test_order_doubles_and_midnight_are_put_straight() -> None:
    policy = QuietHours.from_json({"windows": [NIGHT | {"weekdays": [5, 1, 5], "to": "24:00", "valid_to": None}]})
    assert policy.to_json() == {"windows": [NIGHT | {"weekdays": [1, 5], "to": "00:00"}]}


def test_utc_has_a_name() -> None:
    window = Window(from_time=time(1), to_time=time(2), zone=UTC, weekdays=frozenset({1}))
    assert QuietHours([window]).to_json()["windows"][0]["timezone"] == "UTC"


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in NIGHT.items() if name != key}


_CLOCK = 'must be a time of day, such as "22:00"'
_DAY = 'must be a date, such as "2026-12-25"'
_WEEKDAY = "must be a number from 0 (Sunday) to 6 (Saturday)"
_WINDOW_KEYS = "weekdays, dates, from, to, timezone, valid_from, valid_to"
_ZONE = "is not an IANA zone; right is a name such as Europe/Kyiv"


@pytest.mark.parametrize(
    ("window", "field", "value", "reason"),
    [
        (NIGHT | {"from": "25:00"}, "from", "25:00", f"is not a time of day: {reason_of(lambda: time(25))}"),
        (NIGHT | {"from": "24:00"}, "from", "24:00", f"is not a time of day: {reason_of(lambda: time(24))}"),
        (NIGHT | {"from": "9:00"}, "from", "9:00", _CLOCK),
        (NIGHT | {"to": "10pm"}, "to", "10pm", _CLOCK),
        (NIGHT | {"to": 600}, "to", 600, _CLOCK),
        (NIGHT | {"to": ["06:00"]}, "to", ["06:00"], _CLOCK),
        (NIGHT | {"from": "２2:00"}, "from", "２2:00", _CLOCK),
        (NIGHT | {"weekdays": [1, 7]}, "weekdays", 7, f"{_WEEKDAY}; Sunday is 0"),
        (NIGHT | {"weekdays": [-1]}, "weekdays", -1, _WEEKDAY),
        (NIGHT | {"weekdays": [True]}, "weekdays", True, _WEEKDAY),
        (NIGHT | {"weekdays": ["mon"]}, "weekdays[0]", "mon", "must be a number from 0 (Sunday) to 6 (Saturday)"),
        (NIGHT | {"weekdays": [[1]]}, "weekdays[0]", [1], "must be a number from 0 (Sunday) to 6 (Saturday)"),
        (NIGHT | {"weekdays": "1-5"}, "weekdays", "1-5", "must be a list"),
        (NIGHT | {"weekdays": []}, "weekdays", [], "must name a day, where dates name none"),
        (without("weekdays"), "weekdays", [], "must name a day, where dates name none"),
        (NIGHT | {"dates": ["2026-12-25", "25.12.2026"]}, "dates[1]", "25.12.2026", _DAY),
        (NIGHT | {"dates": ["20261225"]}, "dates[0]", "20261225", _DAY),
        (NIGHT | {"dates": ["2026-02-30"]}, "dates[0]", "2026-02-30", f"is not a date: {_NO_SUCH_DAY}"),
        (NIGHT | {"valid_from": "soon"}, "valid_from", "soon", _DAY),
        (
            NIGHT | {"valid_from": "2026-02-01", "valid_to": "2026-01-01"},
            "valid_to",
            "2026-01-01",
            "must not be before valid_from, which is 2026-02-01",
        ),
        (NIGHT | {"timezone": "Kyiv"}, "timezone", "Kyiv", "is not an IANA zone; did you mean Europe/Kyiv?"),
        (
            NIGHT | {"timezone": "Europe"},
            "timezone",
            "Europe",
            "is not an IANA zone; did you mean Europe/Rome or Europe/Riga or Europe/Oslo?",
        ),
        (NIGHT | {"timezone": ""}, "timezone", "", _ZONE),
        (NIGHT | {"timezone": "../etc/passwd"}, "timezone", "../etc/passwd", _ZONE),
        (NIGHT | {"timezone": 2}, "timezone", 2, "must be the name of an IANA zone, such as Europe/Kyiv"),
        (without("timezone"), "timezone", None, "is missing"),
        (without("from"), "from", None, "is missing"),
    ],
)
def test_an_error_names_the_path_and_the_value(window: dict[str, Any], field: str, value: object, reason: str) -> None:
    with pytest.raises(QuietHoursInvalidError) as raised:
        QuietHours.from_json({"windows": [NIGHT, window]})
    shown = "" if reason == "is missing" else f" {value!r}"
    assert str(raised.value) == f"Invalid quiet hours: windows[1].{field}{shown} {reason}"
    assert (raised.value.field, raised.value.value, raised.value.reason) == (f"windows[1].{field}", value, reason)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301 - made in the line itself


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "quiet hours [] must be an object with windows"),
        ({}, "windows is missing"),
        ({"windows": {}}, "windows {} must be a list"),
        ({"windows": [], "zone": "UTC"}, "quiet hours 'zone' is not a known key; known are windows"),
        ({"windows": ["22-06"]}, "windows[0] '22-06' must be an object with from, to, timezone"),
        (
            {"windows": [NIGHT | {"weekday": 1}]},
            f"windows[0] 'weekday' is not a known key; known are {_WINDOW_KEYS}",
        ),
    ],
)
def test_a_document_of_another_shape_is_refused(document: Any, message: str) -> None:
    with pytest.raises(QuietHoursInvalidError) as raised:
        QuietHours.from_json(document)
    assert str(raised.value) == f"Invalid quiet hours: {message}"


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("from_time", "22:00", "must be a time of day in whole seconds, without a zone of its own"),
        ("to_time", time(6, tzinfo=UTC), "must be a time of day in whole seconds, without a zone of its own"),
        ("to_time", time(6, 0, 0, 1), "must be a time of day in whole seconds, without a zone of its own"),
        ("zone", "Europe/Kyiv", "must be a tzinfo, such as ZoneInfo('Europe/Kyiv')"),
        ("weekdays", [1, 2], "must be a frozenset"),
        ("dates", {date(2026, 1, 1)}, "must be a frozenset"),
        ("dates", frozenset({"2026-01-01"}), "must be a date without a time"),
        ("valid_from", datetime(2026, 1, 1, tzinfo=UTC), "must be a date without a time"),
        ("valid_to", "2026-01-01", "must be a date without a time"),
    ],
)
def test_a_window_checks_its_parts(field: str, value: Any, reason: str) -> None:
    parts: dict[str, Any] = {
        "from_time": time(22), "to_time": time(6), "zone": UTC, "weekdays": frozenset({1}), field: value,
    }  # fmt: skip
    with pytest.raises(QuietHoursInvalidError) as raised:
        Window(**parts)
    assert (raised.value.field, raised.value.reason) == (field, reason)


def test_a_zone_without_a_name_cannot_be_written_down() -> None:
    window = Window(from_time=time(1), to_time=time(2), zone=timezone(timedelta(hours=2)), weekdays=frozenset({1}))
    with pytest.raises(QuietHoursInvalidError, match=r"windows\[0\]\.timezone 'UTC\+02:00' has no IANA name"):
        QuietHours([window]).to_json()
