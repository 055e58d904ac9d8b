"""Pages and filters: `?limit=50&cursor=…` answers {"items": […], "next_cursor": …}.

A cursor is the place where a page ended; it belongs to the list and the filters that returned it. Rows added or
deleted between two requests shift no page, and a page costs only its own rows, wherever it begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Protocol, TypeVar

from fastapi import Path
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from noonbell.api.models.base import LARGEST_PAGE, PLAIN, PageOf, QueryParams, ResponseBody
from noonbell.errors import LanguageError
from noonbell.language.time_phrases import read_time

T = TypeVar("T", bound=ResponseBody)
K = TypeVar("K")

_ISO: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)")
_WORD: Final = re.compile(r"[A-Za-z]{2}")
_RIGHT: Final = (
    'must be an ISO 8601 time with an offset, such as 2026-11-01T09:30:00Z, or English, such as "2 hours ago"'
)
_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9998, 1, 1, tzinfo=UTC)


def _instant(value: Any) -> Any:
    """ISO 8601 with an offset, or English. An unescaped plus sign arrives as a space."""
    text = re.sub(r"(\d) (\d\d:\d\d)$", r"\1+\2", value) if isinstance(value, str) else ""
    try:
        at = _read(text)
        inside = at is not None and _FIRST <= at < _LAST
    except LanguageError as error:
        raise ValueError(f"is not a time: {error.reason}; {_RIGHT}") from error
    except (ValueError, OverflowError) as error:
        raise ValueError(f"is not a time: {error}") from error
    if at is None:
        raise ValueError(_RIGHT)
    if not inside:
        raise ValueError("must lie between the years 1970 and 9997")
    return at


def _read(text: str) -> datetime | None:
    """Return the time of a text; one in English is in UTC by default, relative to the clock of the host."""
    if _ISO.fullmatch(text):
        return datetime.fromisoformat(text)
    if not _WORD.search(text):
        return None
    at = read_time(text, datetime.now(UTC))
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


Instant = Annotated[AwareDatetime, BeforeValidator(_instant)]
Limit = Annotated[int, Field(ge=1, le=LARGEST_PAGE)]
NumberCursor = Annotated[str, Field(pattern=r"^[0-9]{1,18}$")]
RunCursor = Annotated[str, Field(pattern=r"^-?[0-9]{1,18}(\.[0-9]{1,18})?\.(scheduled|manual)$")]
AuditCursor = Annotated[str, Field(pattern=r"^[0-9]{1,18}(\.[0-9]{1,9})?$")]
IdCursor = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,200}$")]

TextCursor = Annotated[str, Field(min_length=1, max_length=600, pattern=PLAIN)]

# Replaces an escaped slash (%2F) of a path on the way from the middleware to the route; no id contains it.
ESCAPED: Final = "\ue000"


def _slashed(value: str) -> str:
    return value.replace(ESCAPED, "/")


Slashed = AfterValidator(_slashed)
ScheduleInPath = Annotated[str, Slashed, Path(alias="schedule_id", min_length=1, max_length=500, pattern=PLAIN)]


DEFAULT_LIMIT: Final = 50


class ById(QueryParams):
    """A page of things that go by their ids."""

    limit: Limit = DEFAULT_LIMIT
    cursor: IdCursor | None = None


class ByText(QueryParams):
    """A page of things that go by their names."""

    limit: Limit = DEFAULT_LIMIT
    cursor: TextCursor | None = None


def page_of(items: Iterable[K], place: Callable[[K], str], asked: ById | ByText) -> tuple[list[K], str | None]:
    """Return a page of a complete list, and the cursor of the next page; `place` returns the sort key of an item."""
    after = asked.cursor or ""
    found = sorted(((place(one), one) for one in items), key=lambda placed: placed[0])
    rest = [placed for placed in found if placed[0] > after]
    shown = rest[: asked.limit]
    return [one for _, one in shown], shown[-1][0] if len(rest) > len(shown) else None


class Paged(Protocol):
    """A page of the library."""

    @property
    def items(self) -> Any: ...

    @property
    def next_cursor(self) -> str | None: ...


def as_page(model: type[T], page: Paged) -> PageOf[T]:
    """Return a page of the library as a page of the API."""
    return PageOf(items=[model.model_validate(one) for one in page.items], next_cursor=page.next_cursor)
