"""Errors of cron expressions and of their arithmetic."""

from __future__ import annotations

from noonbell.errors.base import NoonbellError


class CronError(NoonbellError):
    """The base class of errors about cron expressions."""


class InvalidCronExpressionError(CronError):
    """The text is not a POSIX cron expression. `suggestion` holds one of the same meaning, if one exists."""

    expression: str
    field: str
    reason: str

    def __init__(self, expression: str, field: str, reason: str, suggestion: str | None = None) -> None:
        shown = expression if len(expression) <= 1000 else expression[:100] + "…"
        super().__init__(
            f'Invalid cron expression "{shown}": {field} field {reason}',
            expression=expression,
            field=field,
            reason=reason,
        )
        self.suggestion = suggestion
        if suggestion is not None:
            self.add_note(f"The same schedule in POSIX: {suggestion}")


class CronExpressionInvalidError(InvalidCronExpressionError):
    """A registration's expression is invalid."""


class FieldParseError(CronError):
    """One field of an expression is malformed."""

    field_value: str
    field_name: str

    def __init__(self, message: str, field_value: str, field_name: str) -> None:
        super().__init__(message, fieldValue=field_value, fieldName=field_name)


class CronCalculationError(CronError):
    """The calendar ends before the expression matches again."""

    expression: str
    current_time: str
    cause: Exception

    def __init__(self, expression: str, current_time: str, cause: Exception) -> None:
        super().__init__(
            f"Failed to calculate next occurrence: {cause}",
            expression=expression,
            currentTime=current_time,
            cause=cause,
        )


class NaiveDatetimeError(CronError, ValueError):
    """A datetime without a zone says no instant."""

    def __init__(self, value: object) -> None:
        super().__init__(
            f"{value!r} has no time zone; pass an aware datetime, e.g. datetime(..., tzinfo=ZoneInfo('Europe/Kyiv'))",
            value=value,
        )
