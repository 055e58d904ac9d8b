"""Errors of channels and rules."""

from __future__ import annotations

from collections.abc import Sequence

from noonbell.errors.base import NoonbellError


class NotifyError(NoonbellError):
    """The base class of errors about channels and rules; nothing was changed."""


class ChannelInvalidError(NotifyError):
    """A field of a channel cannot be accepted. `value` is None where it is secret."""

    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        shown = "" if value is None else f" {value!r:.200}"
        super().__init__(f"Invalid channel: {field}{shown} {reason}", field=field, value=value, reason=reason)


class RuleInvalidError(NotifyError):
    """A field of a rule cannot be accepted. `reason` says what would be right."""

    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid rule: {field} {value!r:.200} {reason}", field=field, value=value, reason=reason)


class ChannelNotFoundError(NotifyError):
    sought: str

    def __init__(self, sought: str) -> None:
        super().__init__(f'Channel not found: "{sought}"', sought=sought)


class RuleNotFoundError(NotifyError):
    sought: str

    def __init__(self, sought: str) -> None:
        super().__init__(f'Rule not found: "{sought}"', sought=sought)


class ChannelInUseError(NotifyError):
    channel_id: str
    rules: Sequence[str]

    def __init__(self, channel_id: str, rules: Sequence[str]) -> None:
        super().__init__(
            f'The channel "{channel_id}" is named by the rules {", ".join(rules)}; change or delete those first',
            channelId=channel_id,
            rules=rules,
        )
