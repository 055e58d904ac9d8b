"""The root of the tree of errors, and the attributes of every error."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

_LONGEST_MESSAGE: Final = 2000


def describe_error(error: BaseException, mask: Callable[[str], str] | None = None) -> str:
    """Any error as type and message, cut to a sane length; safe where its text cannot be made or encoded.

    `mask` takes secrets out of the message, before it is cut: half a secret would not be known as one. An error whose
    own team's secrets are out of it already (`masked`) is not searched for those of others: that confirms a guess.
    """
    try:
        message = str(error).encode("utf-8", "backslashreplace").decode()
    except BaseException as second:  # noqa: BLE001 - a broken message must not hide the error it belongs to
        message = f"(its message could not be made: {type(second).__name__})"
    if mask is not None and fact_of(error, "masked") is not True:
        message = mask(message)
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "…"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def fact_of(error: BaseException, name: str) -> object:
    """Return an attribute of an error; None where it has none, or where reading it raises."""
    try:
        return getattr(error, name, None)
    except BaseException:  # noqa: BLE001 - an error that cannot be read is an error all the same
        return None


def raised_type(error: BaseException) -> str:
    """Return the name of the exception that a task raised, given what `periodic.run_now` raised for it."""
    cause = error.__cause__
    wrapped = isinstance(error, NoonbellError) and cause is not None and not isinstance(cause, Exception)
    return type(cause if wrapped else error).__name__


def _rebuild(kind: type[NoonbellError], args: tuple[Any, ...], state: dict[str, Any]) -> NoonbellError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _shown(value: object, reason: str) -> str:
    """A value in a complaint; of what is missing there is nothing to show."""
    return "" if reason == "is missing" else f" {value!r:.200}"


def _snake(key: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower()


class NoonbellError(Exception):
    """The root of all errors of Noonbell. `details` holds the facts; each is an attribute as well."""

    details: Mapping[str, Any]

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details
        for key, value in details.items():
            setattr(self, _snake(key), value)

    def with_facts(self, addition: str, **details: Any) -> Self:
        """Return the error itself, with facts that only a caller knows in its message and its details."""
        self.args = (f"{self}; {addition}",)
        self.details = {**self.details, **details}
        for key, value in details.items():
            setattr(self, _snake(key), value)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # the constructors take other arguments than the message, so pickle rebuilds from what they made of them
        return _rebuild, (type(self), self.args, self.__dict__)
