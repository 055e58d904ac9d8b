"""Small checks that the actions share. Every error names the field, the value and what would be right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from noonbell.errors import ScheduleInvalidError

LONGEST_TEXT: Final = 500


def text(field: str, value: object, *, longest: int = LONGEST_TEXT) -> str:
    """A text that is not blank, and that databases and programs can be given."""
    if not isinstance(value, str) or not value.strip() or len(value) > longest:
        raise ScheduleInvalidError(field, value, f"must be a text of 1 to {longest} characters, not blank")
    return encodable(field, value)


def encodable(field: str, value: str) -> str:
    """A text without NUL that UTF-8 can hold."""
    if "\0" in value:
        raise ScheduleInvalidError(field, value, "must be text without NUL characters")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ScheduleInvalidError(field, value, "must be text that UTF-8 can hold") from error
    return value


def known_only(action: Mapping[str, Any], known: Iterable[str], example: str) -> None:
    """Refuse keys that an action does not have."""
    names = tuple(known)
    for key in action:
        if key not in names:
            near = get_close_matches(str(key), names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"an action of this kind looks like {example}"
            raise ScheduleInvalidError(f"action.{key}", action[key], f"is not known; {hint}")
