"""The interpretation of what a program registers as a target."""

from __future__ import annotations

from noonbell.actions.targets.function import Function
from noonbell.actions.targets.target import Target
from noonbell.errors import ScheduleInvalidError


def as_target(name: str, given: object) -> Target:
    """The target itself, or one around a function."""
    if isinstance(given, Target):
        return given
    if callable(given):
        return Function(given)
    right = "must be a function, or a target such as RedisStream or HttpEndpoint"
    raise ScheduleInvalidError(f"targets.{name}", given, right)
