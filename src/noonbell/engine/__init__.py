"""The loop that makes schedules happen: look, claim, start, settle. One for all the faces."""

from noonbell.engine.clock import SystemClock, clock_for
from noonbell.engine.declared import DeclaredJobs, Observer, Task
from noonbell.engine.engine import Engine
from noonbell.engine.interrupts import contain_interrupts

__all__ = ["DeclaredJobs", "Engine", "Observer", "SystemClock", "Task", "clock_for", "contain_interrupts"]
