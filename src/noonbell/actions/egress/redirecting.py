"""The request that follows a redirect. Pure, and stricter than browsers.

Headers may hold secrets under any name, so another origin gets only those that are known to be harmless. A body may
hold them too, and is never carried to another origin. https does not lead to http. The address of the new place is
judged by the gate like that of the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urljoin

import msgspec

from noonbell.actions.egress.hosts import Target
from noonbell.errors import EgressFailedError

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HARMLESS: Final = frozenset("accept accept-encoding accept-language cache-control user-agent".split())
_OF_A_BODY: Final = frozenset("content-encoding content-language content-md5 content-type digest".split())


class Step(msgspec.Struct, frozen=True, gc=False):
    """One request of an exchange."""

    method: str
    target: Target
    headers: tuple[tuple[str, str], ...]
    body: bytes | None

    def __repr__(self) -> str:
        return f"<Step {self.method:.20} {self.target!r}>"


def redirects_to(status: int, headers: tuple[tuple[str, str], ...]) -> str | None:
    """The place that an answer redirects to, if it does."""
    if status not in _REDIRECTS:
        return None
    return next((value for name, value in headers if name.lower() == "location"), None)


def next_step(step: Step, status: int, place: str, *, read: Callable[[str], Target]) -> Step:
    """The request that follows a redirect; `read` takes its URL apart and refuses bad ones.

    Raises:
        EgressRefusedError: the place may not be reached.
        EgressFailedError: `redirect`: following it would disclose more than it should.
    """
    where = step.target.where
    try:
        joined = urljoin(step.target.url, place)
    except ValueError:
        raise EgressFailedError("redirect", where, "it redirects to something that is not a URL") from None
    target = read(joined)
    if step.target.scheme == "https" and target.scheme == "http":
        raise EgressFailedError("redirect", where, "it redirects from https to http, which is not followed")
    method, body, headers = step.method, step.body, step.headers
    turns_into_get = (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST")
    if turns_into_get:
        method, body = "GET", None
        headers = tuple(pair for pair in headers if pair[0].lower() not in _OF_A_BODY)
    if not _same_owner(step.target, target):
        if body:
            raise EgressFailedError("redirect", where, "it redirects a body to another origin, which is not followed")
        headers = tuple(pair for pair in headers if pair[0].lower() in _HARMLESS)
    # user and password of a redirect were chosen by the server, not by the user
    return Step(method, Target(target.scheme, target.host, target.port, target.rest), headers, body)


def _same_owner(one: Target, other: Target) -> bool:
    if one.host.text != other.host.text:
        return False
    upgrade = (one.scheme, one.port, other.scheme, other.port) == ("http", 80, "https", 443)
    return upgrade or (one.scheme, one.port) == (other.scheme, other.port)
