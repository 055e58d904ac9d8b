"""The loop that makes schedules happen: look, claim, start, settle. One for all the faces."""

from noonbell.engine.declared_jobs import DeclaredJobs, Observer, Task
from noonbell.engine.engine import Engine
from noonbell.engine.interrupts import contain_interrupts
from noonbell.engine.system_clock import SystemClock, clock_for

__all__ = ["DeclaredJobs", "Engine", "Observer", "SystemClock", "Task", "clock_for", "contain_interrupts"]
