"""Errors of secrets and master keys."""

from __future__ import annotations

from noonbell.errors.base import NoonbellError


class SecretError(NoonbellError):
    """The base class of errors about secrets. No message here ever holds a value, or a part of one."""


class SecretInvalidError(SecretError):
    """A secret that cannot be stored. `field` says whether its team, name, version or value is the reason."""

    field: str
    reason: str

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"Invalid secret: {field} {reason}", field=field, reason=reason)


class SecretReferenceError(SecretError):
    """A reference cannot be parsed or resolved. `place` names its place."""

    place: str
    reason: str

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"Invalid reference in {place}: {reason}", place=place, reason=reason)


class SecretUnknownError(SecretError):
    """A reference names a secret that does not exist; nothing was sent."""

    name: str
    place: str

    def __init__(self, name: str, place: str) -> None:
        super().__init__(
            f'Secret not found: "{name}", which {place} refers to; store it, or correct the name',
            name=name,
            place=place,
        )


class SecretUnreadableError(SecretError):
    """A sealed record does not open: it was changed, belongs to another secret, or its master key is not here."""

    team: str
    name: str
    reason: str

    def __init__(self, team: str, name: str, reason: str) -> None:
        super().__init__(
            f'The secret "{name}" of team "{team}" cannot be opened: {reason}', team=team, name=name, reason=reason
        )


class MasterKeyError(SecretError):
    """Master keys cannot be read or written. `source` is the file or the variable."""

    source: str
    reason: str

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"Master keys in {source}: {reason}", source=source, reason=reason)


class MasterKeyMissingError(MasterKeyError):
    """No master key is configured, so no secret is stored or read."""
