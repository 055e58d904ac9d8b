"""Entity tags: what a client has seen, and whether that is still so.

    ETag: "7-1795000000000000"          with every single thing
    If-Match: "7-1795000000000000"      on a change: 412 where it is another by now
    If-None-Match: "7-1795000000000000" on a GET: 304 where it is the same still

A change without If-Match is made whatever was there before. The tag of a schedule is made of its epoch and its last
edit: a run does not change it. Tags are compared as opaque texts, weak ones (W/"…") by their text too.
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
    Header(alias="If-Match", description="The ETag that was seen; the change is refused where it is another by now."),
]
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="The ETag that was seen; 304 where it is the same still.")
]


NOT_MODIFIED: Final[dict[int | str, dict[str, Any]]] = {304: {"description": "It is as it was seen"}}
"""For `responses=` of a route that takes If-None-Match."""


def tag(*parts: object) -> str:
    """The entity tag of what these say."""
    return '"' + "-".join(map(str, parts)) + '"'


def schedule_tag(schedule: Any) -> str:
    return tag(schedule.epoch, int(schedule.updated_at.timestamp() * 1_000_000))


def holds(header: str | None, current: str) -> bool:
    """Whether an If-Match or If-None-Match names the current tag; False where there is no header."""
    if header is None:
        return False
    return header.strip() == "*" or current.strip('"') in _TAG.findall(header)


def unchanged(current: str) -> Any:
    """304: the client has seen this already. Routes give it in place of the model that they declare."""
    return Response(status_code=304, headers={"ETag": current})


def require(if_match: str | None, current: str) -> None:
    """412 where the client has seen another state than the current one."""
    if if_match is not None and not holds(if_match, current):
        raise ProblemError(412, f"It was changed meanwhile; its ETag is {current} now", kind="changed-meanwhile")


@contextmanager
def changing(if_match: str | None) -> Iterator[None]:
    """A change that is refused by the store is a 412 where the client has said what it saw, and a 409 otherwise."""
    try:
        yield
    except DocumentConflictError as error:
        if if_match is None:
            raise
        raise ProblemError(412, str(error), kind="changed-meanwhile") from error
