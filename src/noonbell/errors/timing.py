"""Errors of English schedules, intervals, one-shots, quiet hours and retry policies."""

from __future__ import annotations

from noonbell.errors.base import NoonbellError, _shown


class LanguageError(NoonbellError):
    """A schedule in English that is not understood, or that no schedule can do.

    `position` and `end` say where in `text`, `word` is the text there ("" at its end). `accepted` lists
    what is accepted there, `suggestions` are similar whole phrases that are understood. `marked` shows the place.
    """

    text: str
    field: str
    position: int
    end: int
    word: str
    reason: str
    accepted: tuple[str, ...]
    suggestions: tuple[str, ...]

    def __init__(  # noqa: PLR0917 - the facts of one place, in the order of the message
        self,
        text: str,
        position: int,
        end: int,
        reason: str,
        accepted: tuple[str, ...] = (),
        suggestions: tuple[str, ...] = (),
    ) -> None:
        word = text[position:end]
        shown = text if len(text) <= 200 else text[:200] + "…"
        place = f'at "{word:.60}" (character {position + 1})' if word else "at its end"
        super().__init__(
            f'Cannot understand "{shown}" {place}: {reason}',
            text=text,
            field="text",
            position=position,
            end=end,
            word=word,
            reason=reason,
            accepted=accepted,
            suggestions=suggestions,
        )

    @property
    def marked(self) -> tuple[str, str]:
        """The text on one line, and under it the place."""
        line = "".join(char if char.isprintable() else " " for char in self.text)
        return line, " " * self.position + "^" * max(1, self.end - self.position)


class TimingError(NoonbellError):
    """When a schedule is to run, or when not, cannot be understood."""


class IntervalInvalidError(TimingError):
    """The text is not an interval. `suggestion` holds one of the same meaning, if one exists."""

    expression: str
    field: str
    reason: str

    def __init__(self, expression: str, reason: str, suggestion: str | None = None) -> None:
        shown = expression if len(expression) <= 100 else expression[:100] + "…"
        super().__init__(
            f'Invalid interval "{shown}": {reason}',
            expression=expression,
            field="spec",
            reason=reason,
        )
        self.suggestion = suggestion
        if suggestion is not None:
            self.add_note(f"The same interval in seconds: {suggestion}")


class OneShotInvalidError(TimingError):
    """The text names no instant. Where a clock change took it, `alternatives` holds the nearest times that exist."""

    expression: str
    field: str
    reason: str
    alternatives: tuple[str, ...]

    def __init__(self, expression: str, reason: str, alternatives: tuple[str, ...] = ()) -> None:
        shown = expression if len(expression) <= 100 else expression[:100] + "…"
        super().__init__(
            f'Invalid one-shot time "{shown}": {reason}',
            expression=expression,
            field="spec",
            reason=reason,
            alternatives=alternatives,
        )


class BoundsInvalidError(TimingError):
    """The end of a schedule lies before its start."""

    start_at: int
    end_at: int

    def __init__(self, start_at: int, end_at: int) -> None:
        super().__init__(
            f"Invalid bounds: the end ({end_at} us since 1970) is before the start ({start_at})",
            startAt=start_at,
            endAt=end_at,
        )


class QuietHoursInvalidError(TimingError):
    """A window of quiet hours is malformed; `field` says which part, as a path where it was read from a document."""

    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(
            f"Invalid quiet hours: {field}{_shown(value, reason)} {reason}", field=field, value=value, reason=reason
        )


class RetryPolicyInvalidError(TimingError):
    field: str
    value: object
    reason: str

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(
            f"Invalid retry policy: {field} {value!r:.200} {reason}", field=field, value=value, reason=reason
        )
