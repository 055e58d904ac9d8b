"""The loop that makes schedules happen: look, claim, start, settle. One for all the faces."""

from noonbell.engine.clock import SystemClock
from noonbell.engine.engine import Engine, Observer, Task

__all__ = ["Engine", "Observer", "SystemClock", "Task"]
