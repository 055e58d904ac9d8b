"""The errors of a refused form, by field, so that the page can be shown again with the typed values."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from noonbell.api.problems import of_error
from noonbell.errors import NoonbellError
from noonbell.web.session import RequestContext

_TYPED_WRONG = (409, 422)


async def refused(
    visitor: RequestContext, error: NoonbellError, fields: Collection[str], named: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the errors by the field of the form; under "" an error that belongs to no field.

    `named` maps fields to their names in the form. An error that is not about the input is raised again.
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
    """Return a typed number; other text is returned unchanged, and the library refuses it."""
    if not text:
        return None
    try:
        read = float(text)
    except ValueError:
        return text
    return int(read) if read.is_integer() else read


def listed(text: str) -> list[str]:
    """Return the words of a text, separated by commas or line breaks."""
    return [word.strip() for word in text.replace("\n", ",").split(",") if word.strip()]
