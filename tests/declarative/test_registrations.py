"""What `initialize` accepts, and the error that each mistake gets."""

from __future__ import annotations

import enum
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import pytest

from noonbell.cron import parse
from noonbell.declarative import registrations as module
from noonbell.declarative.registrations import LONGEST_RETRY_DELAY, Registration, is_async_callable, validate
from noonbell.errors import (
    CronExpressionInvalidError,
    InvalidCronExpressionError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    NoonbellError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
    ScheduleFrequencyError,
)

MINUTE = timedelta(minutes=1)


async def work() -> None: ...


def plain_work() -> None: ...


def read(registrations: object, poll_interval: timedelta = MINUTE) -> list[Registration]:
    return validate(registrations, poll_interval=poll_interval)


def item(name: Any = "t", cron: Any = "0 * * * *", callback: Any = work, delay: Any = MINUTE) -> tuple[Any, ...]:
    return name, cron, callback, delay


# --- accepted ---------------------------------------------------------------------------------------------------------


def test_a_registration_is_read_whole() -> None:
    (found,) = read([("sync-logs", " 0  9 * * 1-5", work, timedelta(minutes=5))])
    assert found == Registration(
        name="sync-logs",
        cron=" 0  9 * * 1-5",
        expression=parse("0 9 * * 1-5"),
        callback=work,
        retry_delay=timedelta(minutes=5),
        retry_delay_us=300_000_000,
        is_async=True,
    )


@pytest.mark.parametrize("array", [list, tuple])
@pytest.mark.parametrize("shape", [list, tuple])
def test_lists_and_tuples_are_arrays(array: Callable[..., object], shape: Callable[..., object]) -> None:
    found = read(array([shape(item("a")), shape(item("b"))]))
    assert [task.name for task in found] == ["a", "b"]


def test_no_registrations_are_fine() -> None:
    assert read([]) == []


def test_zero_delay_and_the_longest_are_accepted() -> None:
    found = read([item("a", delay=timedelta(0)), item("b", delay=LONGEST_RETRY_DELAY)])
    assert [task.retry_delay_us for task in found] == [0, LONGEST_RETRY_DELAY // timedelta(microseconds=1)]


@pytest.mark.parametrize("name", ["a b", 'q"q', " padded ", "задача", "🔔", "a\x00b", "é" * 5000])
def test_names_are_kept_to_the_letter(name: str) -> None:
    assert read([item(name)])[0].name == name


def test_a_member_of_an_enumeration_is_its_text() -> None:
    class Job(enum.StrEnum):
        SYNC = "sync"
        HOURLY = "0 * * * *"

    (found,) = read([item(Job.SYNC, Job.HOURLY)])
    assert (found.name, type(found.name), found.cron, type(found.cron)) == ("sync", str, "0 * * * *", str)


def test_names_differ_by_case_and_blanks() -> None:
    assert len(read([item("a"), item("A"), item("a ")])) == 3


def test_a_text_is_parsed_once_however_many_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counting(text: str) -> object:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(module, "parse", counting)
    read([item(f"t{i}", "0 * * * *" if i % 2 else "30 * * * *") for i in range(100)])
    assert parsed == ["30 * * * *", "0 * * * *"]


# --- async or not -----------------------------------------------------------------------------------------------------


class Worker:
    async def go(self) -> None: ...

    def plain(self) -> None: ...

    @staticmethod
    async def still() -> None: ...

    @classmethod
    async def of_class(cls) -> None: ...


class AsyncCall:
    async def __call__(self) -> None: ...


class PlainCall:
    def __call__(self) -> None: ...


class Unhashable(AsyncCall):
    __hash__ = None  # type: ignore[assignment]  # the point of the case


async def with_argument(_: int) -> None: ...


ASYNC_CALLABLES = [
    work,
    Worker().go,
    Worker.still,
    Worker.of_class,
    AsyncCall(),
    AsyncCall().__call__,
    Unhashable(),
    partial(with_argument, 1),
    partial(partial(with_argument), 1),
    partial(Worker().go),
    partial(AsyncCall()),
    AsyncMock(),
]
PLAIN_CALLABLES = [plain_work, Worker().plain, PlainCall(), partial(plain_work), partial(PlainCall()), AsyncCall, print]


@pytest.mark.parametrize("callback", ASYNC_CALLABLES)
def test_what_gives_a_coroutine_is_async(callback: object) -> None:
    assert read([item(callback=callback)])[0].is_async is True
    assert is_async_callable(callback)


@pytest.mark.parametrize("callback", PLAIN_CALLABLES)
def test_everything_else_is_plain(callback: object) -> None:
    assert read([item(callback=callback)])[0].is_async is False
    assert not is_async_callable(callback)


def test_each_callback_is_judged_by_itself() -> None:
    callbacks = [work, plain_work, Worker().go, Worker().plain, AsyncCall(), PlainCall()] * 2
    found = read([item(str(i), callback=callback) for i, callback in enumerate(callbacks)])
    assert [task.is_async for task in found] == [True, False] * 6
    assert [task.callback for task in found] == callbacks


def plain_generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class GeneratorCall:
    def __call__(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize("callback", [plain_generator, async_generator, partial(async_generator), GeneratorCall()])
def test_a_generator_function_would_do_nothing_and_is_refused(callback: object) -> None:
    with pytest.raises(InvalidRegistrationError, match="generator function: calling it runs nothing") as caught:
        read([item(callback=callback)])
    assert caught.value.field == "callback"


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "x", 7, True, {}, {item()}, b"", iter([item()]), object()])
def test_what_is_no_array(value: object) -> None:
    with pytest.raises(RegistrationsNotArrayError, match=r"^Registrations must be an array$") as caught:
        read(value)
    assert caught.value.details == {}


@pytest.mark.parametrize(
    "bad",
    [
        "text",
        "four",
        5,
        None,
        {},
        {"a": 1, "b": 2, "c": 3, "d": 4},
        [],
        ["t"],
        item()[:3],
        (*item(), 1),
        item(name=None),
        item(name=123),
        item(name=b"t"),
        item(name=[]),
        item(cron=None),
        item(cron=5),
        item(callback=None),
        item(callback="work"),
        item(callback={}),
        item(delay=None),
        item(delay="5m"),
        item(delay=60),
        item(delay=60.0),
        item(delay=True),
    ],
)
def test_what_has_the_wrong_shape(bad: object) -> None:
    with pytest.raises(RegistrationShapeError) as caught:
        read([item("first"), bad])
    assert str(caught.value) == "Invalid registration shape: expected [string, string, function, Duration]"
    assert caught.value.details == {"registrationIndex": 1, "received": bad}
    assert caught.value.received is bad


@pytest.mark.parametrize("name", ["", " ", "\t\n", "\u2003\xa0"])
def test_a_blank_name(name: str) -> None:
    with pytest.raises(InvalidRegistrationError) as caught:
        read([item(name)])
    assert caught.value.details == {"field": "name", "value": name, "reason": "must be a text that is not blank"}


def test_a_name_that_no_store_can_keep() -> None:
    with pytest.raises(InvalidRegistrationError, match="half of a surrogate pair") as caught:
        read([item("a\ud800")])
    assert caught.value.field == "name"


@pytest.mark.parametrize(
    ("cron", "field"),
    [
        ("", "expression"),
        ("* * * *", "expression"),
        ("@daily", "expression"),
        ("60 * * * *", "minute"),
        ("0 0 ? * *", "day"),
        ("0 0 31 2 *", "expression"),
    ],
)
def test_an_invalid_expression_says_what_the_parser_said(cron: str, field: str) -> None:
    with pytest.raises(InvalidCronExpressionError) as parser:
        parse(cron)
    with pytest.raises(CronExpressionInvalidError) as caught:
        read([item(cron=cron)])
    assert caught.value.field == field
    assert str(caught.value) == str(parser.value)
    assert caught.value.details == parser.value.details
    assert caught.value.suggestion == parser.value.suggestion
    assert type(caught.value.__cause__) is InvalidCronExpressionError


def test_the_error_offers_the_same_schedule_in_posix() -> None:
    with pytest.raises(CronExpressionInvalidError) as caught:
        read([item(cron="@daily")])
    assert caught.value.suggestion == "0 0 * * *"


@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [
        (timedelta(seconds=-1), -1000),
        (timedelta(seconds=-0.001), -1),
        (timedelta(microseconds=-1), -1),
        (timedelta(microseconds=-1001), -2),
        (timedelta.min, -86399999913600000),
    ],
)
def test_a_negative_delay(delay: timedelta, milliseconds: int) -> None:
    with pytest.raises(NegativeRetryDelayError, match=r"^Retry delay must be non-negative$") as caught:
        read([item(delay=delay)])
    assert caught.value.details == {"retryDelayMs": milliseconds}


@pytest.mark.parametrize("delay", [LONGEST_RETRY_DELAY + timedelta(microseconds=1), timedelta.max])
def test_a_delay_beyond_the_calendar(delay: timedelta) -> None:
    with pytest.raises(InvalidRegistrationError, match="must not be longer than 365000 days") as caught:
        read([item(delay=delay)])
    assert (caught.value.field, caught.value.value) == ("retryDelay", delay)


def test_a_duplicate_is_logged_then_raised(caplog: pytest.LogCaptureFixture) -> None:
    names = ["p", "q", "p", "q"]
    with caplog.at_level(logging.WARNING, "noonbell"), pytest.raises(ScheduleDuplicateTaskError) as caught:
        read([item(name) for name in names])
    assert str(caught.value) == 'Task with name "p" is already scheduled'
    assert caught.value.details == {"taskName": "p"}
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "Registrations refused: 'p' is registered twice, again at index 2"


def test_an_enumeration_member_and_its_text_are_one_name() -> None:
    class Job(enum.StrEnum):
        SYNC = "sync"

    with pytest.raises(ScheduleDuplicateTaskError):
        read([item("sync"), item(Job.SYNC)])


@pytest.mark.parametrize(
    ("items", "error"),
    [
        ([item("a"), item("b", "invalid"), item("c", delay=-MINUTE)], CronExpressionInvalidError),
        ([item("a"), item("b", delay=-MINUTE), item("c", "invalid")], NegativeRetryDelayError),
        ([("a", "0 * * * *"), item("d"), item("d")], RegistrationShapeError),
        ([item("d"), item("d"), ("a", "0 * * * *")], ScheduleDuplicateTaskError),
        ([item("", "invalid", work, -MINUTE)], InvalidRegistrationError),
        ([item("a", "invalid", work, -MINUTE)], CronExpressionInvalidError),
        ([item("", "invalid", None, -MINUTE)], RegistrationShapeError),
        ([item("a"), item("a", delay=-MINUTE)], NegativeRetryDelayError),
    ],
)
def test_the_first_mistake_is_the_one_that_is_told(items: list[object], error: type[NoonbellError]) -> None:
    with pytest.raises(error):
        read(items)


# --- how densely it fires ---------------------------------------------------------------------------------------------

TEN = "0,10,20,30,40,50 * * * *"


@pytest.mark.parametrize(
    ("cron", "minutes"),
    [("* * * * *", 1), ("* * * * *", 0.5), (TEN, 10), (TEN, 9), ("0 * * * *", 60), ("0 0 * * *", 1440)],
)
def test_as_dense_as_the_polling_is_accepted(cron: str, minutes: float) -> None:
    assert len(read([item(cron=cron)], timedelta(minutes=minutes))) == 1


@pytest.mark.parametrize(
    ("cron", "seconds", "spacing"), [(TEN, 601, 600), ("* * * * *", 61, 60), ("0 * * * *", 7200, 3600)]
)
def test_denser_than_the_polling_is_refused(cron: str, seconds: int, spacing: int) -> None:
    with pytest.raises(ScheduleFrequencyError) as caught:
        read([item("a", "0 0 * * *"), item("b", cron)], timedelta(seconds=seconds))
    assert caught.value.details == {
        "expression": cron,
        "minimumSpacingSeconds": spacing,
        "pollIntervalSeconds": seconds,
    }


def test_a_fine_poll_interval_refuses_nothing() -> None:
    assert len(read([item(cron="* * * * *")], timedelta(seconds=1))) == 1


TAKES_NOTHING: Callable[..., None] = lambda: None  # noqa: E731 - as the type checker is to see it
PARTS = "(name, cron expression, callback, retry delay)"


class Handyman:
    async def work(self) -> None: ...

    async def work_on(self, what: str) -> None: ...

    async def work_quietly(self, what: str = "nothing", *, loud: bool = False) -> None: ...


def named_only(*, what: str) -> None: ...


@pytest.mark.parametrize(
    ("callback", "says"),
    [
        (partial(Handyman().work_on), "missing a required argument: 'what'"),
        (partial(named_only), "missing a required"),
        (partial(lambda one, two: (one, two), 1), "missing a required argument: 'two'"),
        (partial(partial(lambda one, two: (one, two)), two=2), "missing a required argument: 'one'"),
        (partial(TAKES_NOTHING, 1), "incorrect arguments"),
        (partial(TAKES_NOTHING, unknown=1), "incorrect arguments"),
    ],
)
def test_a_partial_that_cannot_be_called_without_arguments(callback: object, says: str) -> None:
    with pytest.raises(InvalidRegistrationError, match=f"cannot be called without further arguments .*{says}"):
        read([item(callback=callback)])


@pytest.mark.parametrize(
    "callback",
    [partial(Handyman().work_on, "roof"), partial(named_only, what="roof"), partial(print, "done"), partial(dict)],
)
def test_a_partial_that_has_its_arguments(callback: object) -> None:
    assert len(read([item(callback=callback)])) == 1


@pytest.mark.parametrize(
    ("bad", "note"),
    [
        ("a string", f"it must be a tuple {PARTS}, but is 'a string' (str)"),
        (("a", "* * * * *"), f"it must have 4 parts, {PARTS}, but has 2: "),
        (item(5), "part 0, its name, must be a string, but is 5 (int)"),
        (item(cron=None), "part 1, its cron expression, must be a string, but is None (NoneType)"),
        (item(callback="x"), "part 2, its callback, must be a function or another callable, but is 'x' (str)"),
        (
            item(delay=60),
            "part 3, its retry delay, must be a datetime.timedelta, such as timedelta(minutes=5), but is 60 (int)",
        ),
    ],
)
def test_a_wrong_shape_names_registration_part_and_remedy(bad: object, note: str) -> None:
    with pytest.raises(RegistrationShapeError) as caught:
        read([item("first"), bad])
    (found,) = caught.value.__notes__
    assert found.startswith(f"Registration 1: {note}")


@pytest.mark.parametrize("callback", [Handyman().work_on, Handyman.work, named_only, lambda what: what])
def test_a_callback_that_needs_arguments(callback: object) -> None:
    with pytest.raises(InvalidRegistrationError, match="needs arguments") as caught:
        read([item(callback=callback)])
    assert caught.value.field == "callback"


@pytest.mark.parametrize(
    "callback", [Handyman().work, Handyman().work_quietly, lambda *_: None, partial(named_only, what="x")]
)
def test_a_callback_that_can_do_without(callback: object) -> None:
    assert len(read([item(callback=callback)])) == 1
