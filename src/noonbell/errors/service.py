"""Errors of the service: settings, access, heartbeat monitors."""

from __future__ import annotations

from noonbell.errors.base import NoonbellError


class SettingsInvalidError(NoonbellError):
    """A setting cannot be accepted. `source` says where it was given; `value` is None where it is secret."""

    field: str
    value: object
    source: str
    reason: str

    def __init__(self, field: str, value: object, source: str, reason: str) -> None:
        shown = "" if value is None else f" {value!r:.200}"
        super().__init__(
            f"Invalid setting {field}{shown} ({source}): {reason}",
            field=field,
            value=value,
            source=source,
            reason=reason,
        )


class AccessError(NoonbellError):
    """The base class of errors about teams, API keys, users or logins."""


class AccessInvalidError(AccessError):
    """A field of a team, an API key or a user cannot be accepted. `value` is None where it is secret."""

    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        shown = "" if value is None else f" {value!r:.200}"
        super().__init__(f"Invalid {field}{shown}: {reason}", field=field, value=value, reason=reason)


class AccessNotFoundError(AccessError):
    kind: str
    sought: str

    def __init__(self, kind: str, sought: str) -> None:
        super().__init__(f'{kind[:1].upper()}{kind[1:]} not found: "{sought}"', kind=kind, sought=sought)


class LoginRefusedError(AccessError):
    """A login failed. The message never says whether the name or the password was wrong.

    `retry_after_seconds` is set where there were too many failures.
    """

    retry_after_seconds: int | None

    def __init__(self, reason: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(reason, retryAfterSeconds=retry_after_seconds)
        self.reason = reason


class MonitorError(NoonbellError):
    """The base class of errors about heartbeat monitors; nothing was changed."""


class MonitorInvalidError(MonitorError):
    """A field of a monitor or of a ping cannot be accepted. `reason` says what would be right."""

    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid monitor: {field} {value!r:.200} {reason}", field=field, value=value, reason=reason)


class MonitorNotFoundError(MonitorError):
    sought: str

    def __init__(self, sought: str) -> None:
        super().__init__(f'Monitor not found: "{sought}"', sought=sought)


class PingUnknownError(MonitorError):
    """No monitor has the token of a ping. The message does not repeat it: a mistyped one is nearly a right one."""

    def __init__(self) -> None:
        super().__init__("No monitor has this ping URL: it is mistyped, or its monitor was deleted or given a new one")
