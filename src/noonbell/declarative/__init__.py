"""The declarative face: tasks are declared once, at the start; there is nothing to call while they run."""

from noonbell.declarative.scheduler import Scheduler

__all__ = ["Scheduler"]
