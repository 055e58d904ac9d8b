"""The arguments of `initialize`, turned into values that the rest can rely on.

`validate` reads the registrations from front to back and raises for the first one that cannot be accepted: nothing has
been touched by then. Within one registration the order is: its shape, name, expression, callback, retry delay, whether
the name was there before, and how densely it fires. The only effect is a warning in the log for a duplicate name.

A million registrations are an ordinary input: a text is parsed once however many tasks share it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final

import msgspec

from noonbell.core.instants import MICROSECOND
from noonbell.cron import CronExpression, parse
from noonbell.errors import (
    CronExpressionInvalidError,
    InvalidCronExpressionError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
    ScheduleFrequencyError,
    ScheduleInvalidNameError,
)

logger = logging.getLogger(__name__)

Callback = Callable[[], Any]

# Every minute is seen by a loop that looks once a minute; only a slower one can overlook something.
_FINEST_POLL: Final = timedelta(minutes=1)
_NOTHING: Final = timedelta(0)
_MILLISECOND: Final = timedelta(milliseconds=1)
# About a thousand years. An instant this far off is still a date, and its microseconds fit the store's integers.
LONGEST_RETRY_DELAY: Final = timedelta(days=365_000)


class Registration(msgspec.Struct, frozen=True):
    """A task as declared, found to be sound. `cron` is the text as typed: stored tasks are compared with it."""

    name: str
    cron: str
    expression: CronExpression
    callback: Callback
    retry_delay: timedelta
    retry_delay_us: int
    is_async: bool


def validate(registrations: object, *, poll_interval: timedelta) -> list[Registration]:
    """The registrations as values, in their order; or the error of the first that is wrong."""
    if not isinstance(registrations, list | tuple):
        raise RegistrationsNotArrayError
    guard = poll_interval if poll_interval > _FINEST_POLL else None
    expressions: dict[str, CronExpression] = {}
    # By identity, since a callable need not be hashable; the registrations keep each of them alive.
    kinds: dict[int, bool] = {}
    names: set[str] = set()
    found: list[Registration] = []
    for index, item in enumerate(registrations):
        name, cron, callback, delay = _shape(index, item)
        if type(name) is not str or not name.isascii() or not name or name.isspace():
            name = _name(name)
        expression = expressions.get(cron)
        # A text that is too dense never enters the table: it raises the first time, below.
        is_new = expression is None
        if expression is None:
            expression = expressions[cron] = _expression(cron)
        plain = _innermost(callback)
        is_async = kinds.get(id(plain))
        if is_async is None:
            is_async = kinds[id(plain)] = _asynchronous(plain)
        if _needs_arguments(callback):
            raise InvalidRegistrationError("callback", callback, "needs arguments; a task is called without any")
        if isinstance(callback, partial):
            _check_partial(callback)
        if not _NOTHING <= delay <= LONGEST_RETRY_DELAY:
            raise _delay_error(delay)
        if name in names:
            logger.warning("Registrations refused: %r is registered twice, again at index %d", name, index)
            raise ScheduleDuplicateTaskError(name)
        names.add(name)
        if is_new and guard is not None:
            _check_spacing(expression, guard)
        found.append(Registration(name, expression.text, expression, callback, delay, delay // MICROSECOND, is_async))
    return found


def is_async_callable(value: object) -> bool:
    """Return whether calling it gives a coroutine: an async function, an object with an async `__call__`, a partial of
    one.
    """
    plain = _innermost(value)
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(_call_of(plain))


def _shape(index: int, item: object) -> tuple[str, str, Callback, timedelta]:
    if isinstance(item, list | tuple) and len(item) == 4:
        name, cron, callback, delay = item
        if isinstance(name, str) and isinstance(cron, str) and callable(callback) and isinstance(delay, timedelta):
            return name, cron, callback, delay
    raise RegistrationShapeError(index, item)


def _name(name: str) -> str:
    """The name as plain text: a member of a StrEnum, say, is stored as its value."""
    plain = str.__str__(name)
    if not plain or plain.isspace():
        raise ScheduleInvalidNameError(name)
    try:
        plain.encode()
    except UnicodeEncodeError as error:
        raise InvalidRegistrationError("name", name, "holds half of a surrogate pair; no store can keep it") from error
    return plain


def _expression(cron: str) -> CronExpression:
    try:
        return parse(str.__str__(cron))
    except InvalidCronExpressionError as error:
        raise CronExpressionInvalidError(error.expression, error.field, error.reason, error.suggestion) from error


def _asynchronous(plain: object) -> bool:
    if inspect.iscoroutinefunction(plain):
        return True
    called = plain if inspect.isfunction(plain) else _call_of(plain)
    # Calling one of these runs none of its body, so every run would "succeed" without having done anything.
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise InvalidRegistrationError(
            "callback", plain, "is a generator function: calling it runs nothing; remove the yield"
        )
    return inspect.iscoroutinefunction(called)


def _needs_arguments(callback: Any) -> bool:
    """Return whether a plain function or method cannot be called without arguments; of other callables it is not
    judged.
    """
    plain, given = callback, 0
    if inspect.ismethod(callback):
        plain, given = callback.__func__, 1
    code = getattr(plain, "__code__", None)
    if code is None:
        return False
    positional = code.co_argcount - len(plain.__defaults__ or ()) - given
    named = code.co_kwonlyargcount - len(plain.__kwdefaults__ or ())
    return bool(positional > 0 or named > 0)


def _check_partial(callback: partial[Any]) -> None:
    """Refuse a partial whose function lacks arguments, or does not take those that it is given."""
    try:
        inspect.signature(callback.func)
    except (ValueError, TypeError):
        return  # of some built-in functions it is not known what they take
    try:
        inspect.signature(callback).bind()
    except (ValueError, TypeError) as error:
        reason = f"cannot be called without further arguments ({error}); a task is called without any"
        raise InvalidRegistrationError("callback", callback, reason) from None


def _delay_error(delay: timedelta) -> Exception:
    if delay < _NOTHING:
        # Rounded down: what is refused for being negative never reads as zero.
        return NegativeRetryDelayError(delay // _MILLISECOND)
    return InvalidRegistrationError("retryDelay", delay, f"must not be longer than {LONGEST_RETRY_DELAY.days} days")


def _check_spacing(expression: CronExpression, poll_interval: timedelta) -> None:
    spacing = expression.minimum_spacing()
    if spacing < poll_interval:
        raise ScheduleFrequencyError(expression.text, spacing.total_seconds(), poll_interval.total_seconds())


def _innermost(value: object) -> object:
    while True:
        if isinstance(value, partial):
            value = value.func
        elif inspect.ismethod(value):
            value = value.__func__
        else:
            return value


def _call_of(value: object) -> object:
    """The `__call__` that a call of the value runs; that of a class makes an instance and is of no interest."""
    return None if isinstance(value, type) else _innermost(getattr(type(value), "__call__", None))  # noqa: B004 - wanted: the function, not whether there is one
