"""Errors of signed messages and their receivers."""

from __future__ import annotations

from noonbell.errors.base import NoonbellError


class SigningKeyError(NoonbellError):
    """A key for signatures is malformed. The message never holds the key."""

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__(f"Invalid signing key: {reason}", reason=reason)


class ReceiveError(NoonbellError):
    """A received message is not to be handled. `status` is the answer to its sender."""

    status: int = 400
    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__(reason, reason=reason)


class WebhookMalformedError(ReceiveError):
    """A header of the signature is missing or cannot be understood."""

    status = 400


class WebhookRefusedError(ReceiveError):
    """No signature fits any of the keys, or the message is too old or from the future."""

    status = 401


class WebhookTooLargeError(ReceiveError):
    status = 413


class WebhookInProgressError(ReceiveError):
    """The same message is being handled at this moment; its sender should ask again a little later."""

    status = 409


class WebhookRepeatedError(ReceiveError):
    """The same message has been handled. The answer to its sender is a success."""

    status = 200


class WebhookUnavailableError(ReceiveError):
    """The memory of messages is full of such that are being handled, or cannot be written."""

    status = 503
