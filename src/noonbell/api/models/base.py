"""The base classes of requests and responses, pages, and the types that many models share."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator

T = TypeVar("T")

LARGEST_PAGE: Final = 1_000

# Valid in a path, a log line and any database: everything but control characters.
PLAIN: Final = r"^[^\u0000-\u001f\u007f]+$"
Name = Annotated[str, Field(min_length=1, max_length=500, pattern=PLAIN)]
ShortName = Annotated[str, Field(min_length=1, max_length=200, pattern=PLAIN)]
Tag = Annotated[str, Field(min_length=1, max_length=500, pattern=PLAIN)]
Seconds = Annotated[float, Field(ge=0, lt=1e12, allow_inf_nan=False)]


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


Lasting = Annotated[float, BeforeValidator(_seconds)]
"""A duration of the library, in seconds."""


def _nothing() -> None:
    return None


def left_out(**facts: Any) -> Any:
    """Declare a field that may be left out, but is not null."""
    return Field(default_factory=_nothing, **facts)


ListOf = Annotated[list[T], FailFast()]
"""A list that is checked up to its first wrong element."""

DEEPEST: Final = 100
"""The deepest nesting of lists and objects in requests and responses: much deeper cannot be written as JSON."""


def _is_deep(value: Any, most: int = DEEPEST) -> bool:
    """Check level by level: a recursion would itself fail on a value that is too deep."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list | tuple)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return any(isinstance(one, dict | list | tuple) for one in level)


def _refuse_deep(value: Any) -> Any:
    if _is_deep(value):
        raise ValueError(f"must not be nested more than {DEEPEST} deep")
    return value


def _cut_deep(value: Any, left: int = DEEPEST) -> Any:
    if left == DEEPEST and not _is_deep(value):
        return value
    if left == 0:
        return "…"
    if isinstance(value, dict):
        return {key: _cut_deep(one, left - 1) for key, one in value.items()}
    return [_cut_deep(one, left - 1) for one in value] if isinstance(value, list | tuple) else value


JsonValue = Annotated[Any, AfterValidator(_refuse_deep)]
ShallowJson = Annotated[Any, BeforeValidator(_cut_deep)]
ShallowObject = Annotated[dict[str, Any], BeforeValidator(_cut_deep)]


@cache
def _names(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of a model's fields as they are sent."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())


class _Known(BaseModel):
    """A model whose validation stops at the first unknown field: thousands of errors are of no use."""

    @model_validator(mode="before")
    @classmethod
    def _up_to_the_first_unknown(cls, value: Any) -> Any:
        known = _names(cls)
        if cls.model_config.get("extra") == "allow" or not isinstance(value, dict) or value.keys() <= known:
            return value
        first = next(key for key in value if key not in known)
        return {**{key: value[key] for key in known if key in value}, first: value[first]}


class RequestBody(_Known):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def given(self) -> dict[str, Any]:
        """Return the fields that were sent, as plain values, without those that were left out."""
        return self.model_dump(exclude_unset=True, by_alias=True)


class QueryParams(_Known):
    """The query of a request: texts that are converted to their types. An unknown parameter is an error."""

    model_config = ConfigDict(extra="forbid")


class ResponseBody(BaseModel):
    """The body of a response, made from the attributes of a library record."""

    model_config = ConfigDict(from_attributes=True)


class PageOf(ResponseBody, Generic[T]):
    """A page of a list. `next_cursor` is the `cursor` of the next page, null at the end."""

    items: list[T]
    next_cursor: str | None = None


Flag = Literal["true", "false"]


def flag(value: Flag | None) -> bool | None:
    return None if value is None else value == "true"
