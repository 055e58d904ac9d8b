"""What a form was refused for, put to its fields, so that the page can be shown again with what was typed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from noonbell.api.problems import of_error
from noonbell.errors import NoonbellError
from noonbell.web.session import RequestContext

_TYPED_WRONG = (409, 422)


async def refused(
    visitor: RequestContext, error: NoonbellError, fields: Collection[str], named: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What is wrong under the name of its field in the form; under "" where it is about none of them.

    `named` says what a field is called in the form. What is no matter of what was typed is raised again.
    """
    if of_error(error).status not in _TYPED_WRONG:
        raise error
    field = str(getattr(error, "field", "") or "")
    reason = getattr(error, "reason", None)
    mask = await visitor.masking()
    for known in (field, field.partition("[")[0]):
        name = (named or {}).get(known, known)
        if name in fields and reason is not None:
            return {name: mask(str(reason))}
    return {"": mask(str(error))}


def number(text: str) -> float | str | None:
    """A number that was typed; what is none stays as it is, and is refused by whoever takes it."""
    if not text:
        return None
    try:
        read = float(text)
    except ValueError:
        return text
    return int(read) if read.is_integer() else read


def listed(text: str) -> list[str]:
    """Words between commas or on lines of their own."""
    return [word.strip() for word in text.replace("\n", ",").split(",") if word.strip()]
