"""Errors of outbound connections."""

from __future__ import annotations

from noonbell.errors.base import NoonbellError


class EgressError(NoonbellError):
    """The base class of errors of egress: a request did not leave this machine, or got no answer.

    Messages name host and port at most: no user, no path, no query, no header and no text of the other side.
    """

    kind: str
    where: str
    reason: str

    def __init__(self, kind: str, where: str, reason: str) -> None:
        super().__init__(f"{kind}: {where}: {reason}", kind=kind, where=where, reason=reason)


class EgressRefusedError(EgressError):
    """The host, the address or the request is not let out; nothing was sent to it."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__("refused-by-egress", where, reason)


class EgressFailedError(EgressError):
    """It was let out, and failed on the way; `kind` is one of those in the drawing above."""


class EgressPolicyInvalidError(EgressError):
    """The operator's rules cannot be understood."""

    field: str
    value: object

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__("policy", f"{field} {value!r:.200}", reason)
        self.field = field
        self.value = value
