"""Entity tags: the version that a client has seen, and whether it is still current.

    ETag: "7-1795000000000000"          in the response for a single resource
    If-Match: "7-1795000000000000"      on a change: 412 if the tag has changed since
    If-None-Match: "7-1795000000000000" on a GET: 304 if the tag is the same

A change without If-Match is made unconditionally. The tag of a schedule is made of its epoch and its last edit: a run
does not change it. Tags are compared as opaque texts, and weak ones (W/"…") by their text as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

from fastapi import Header, Response

from noonbell.api.problems import ProblemError
from noonbell.errors import DocumentConflictError

_TAG: Final = re.compile(r'(?:W/)?"([^"]*)"')

IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="The ETag of the client's version; refused if it is outdated."),
]
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="The ETag of the client's version; 304 if it is current.")
]


NOT_MODIFIED: Final[dict[int | str, dict[str, Any]]] = {304: {"description": "It is as it was seen"}}
"""For `responses=` of a route that takes If-None-Match."""


def tag(*parts: object) -> str:
    """Return the entity tag for these values."""
    return '"' + "-".join(map(str, parts)) + '"'


def schedule_tag(schedule: Any) -> str:
    return tag(schedule.epoch, int(schedule.updated_at.timestamp() * 1_000_000))


def holds(header: str | None, current: str) -> bool:
    """Return whether an If-Match or If-None-Match names the current tag; False without a header."""
    if header is None:
        return False
    return header.strip() == "*" or current.strip('"') in _TAG.findall(header)


def unchanged(current: str) -> Any:
    """Return 304: the client has this version. Routes return it in place of the model that they declare."""
    return Response(status_code=304, headers={"ETag": current})


def require(if_match: str | None, current: str) -> None:
    """Raise 412 if the client has seen another version than the current one."""
    if if_match is not None and not holds(if_match, current):
        raise ProblemError(412, f"Changed since it was read: its ETag is now {current}", kind="changed-meanwhile")


@contextmanager
def changing(if_match: str | None) -> Iterator[None]:
    """Turn a conflict in the store into a 412 if the client sent If-Match; without it, the conflict stays a 409."""
    try:
        yield
    except DocumentConflictError as error:
        if if_match is None:
            raise
        raise ProblemError(412, str(error), kind="changed-meanwhile") from error
