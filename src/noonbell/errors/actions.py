"""Errors of actions: commands, HTTP jobs, deliveries."""

from __future__ import annotations

from typing import ClassVar

from noonbell.errors.base import NoonbellError


class ActionError(NoonbellError):
    """The action of a run could not be carried out."""


class CommandsOffError(ActionError):
    """Commands are off, or this program is not among those that the operator allows."""

    program: str
    reason: str

    def __init__(self, program: str, reason: str) -> None:
        super().__init__(f"The command {program!r:.200} is not allowed: {reason}", program=program, reason=reason)


class CommandFailedError(ActionError):
    """A program could not be started, or did not end with exit code 0.

    `detail` is the record of the attempt, packed (`core.detail`): how it ended, its output.
    """

    program: str
    reason: str
    detail: bytes

    def __init__(self, program: str, reason: str, detail: bytes) -> None:
        super().__init__(f"The command {program!r:.200} {reason}", program=program, reason=reason)
        self.detail = detail  # not among the details: it may be large


class HttpJobFailedError(ActionError):
    """A request failed. `kind` is that of egress (`dns`, `tls`, `timeout`, …), or `status`, `assertion` or `secret`.

    `detail` is the record of the attempt, packed, and `retry_after_us` is when the other side asked to be tried again.
    Nothing here holds a secret.
    """

    masked: ClassVar[bool] = True
    kind: str
    reason: str
    detail: bytes
    retry_after_us: int | None

    def __init__(self, kind: str, reason: str, detail: bytes, *, retry_after_us: int | None = None) -> None:
        super().__init__(f"{kind}: {reason}", kind=kind, reason=reason, retryAfterUs=retry_after_us)
        self.detail = detail  # not among the details: it may be a megabyte


class NotStartedError(ActionError):
    """The engine stops, and the action was never called: its run is handed back with its attempt unchanged."""

    def __init__(self) -> None:
        super().__init__("The engine stopped before the action was called")


class DeliveryError(ActionError):
    """A message did not reach its target."""

    target: str
    reason: str

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"The message did not reach {target}: {reason}", target=target, reason=reason)


class TargetAwayError(DeliveryError):
    """The target as a whole cannot be reached or used: whatever else is sent there now would fail as well.

    Of several messages that were sent together the first `arrived` have arrived for certain.
    """

    arrived: int

    def __init__(self, target: str, reason: str, arrived: int = 0) -> None:
        super().__init__(target, reason)
        self.arrived = arrived
