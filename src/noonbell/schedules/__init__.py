"""Durable schedules: cron, interval and one-shot, created and changed while the program runs."""

from noonbell.actions.callback import Call
from noonbell.schedules.fields import Changes, Fields
from noonbell.schedules.history import Run
from noonbell.schedules.schedule_records import (
    Attempt,
    Audited,
    Occurrence,
    Page,
    QuietHoursRecord,
    Retry,
    Schedule,
    Undelivered,
    Upcoming,
)
from noonbell.schedules.schedules import Schedules
from noonbell.schedules.statistics import Statistics

__all__ = [
    "Attempt",
    "Audited",
    "Call",
    "Changes",
    "Fields",
    "Occurrence",
    "Page",
    "QuietHoursRecord",
    "Retry",
    "Run",
    "Schedule",
    "Schedules",
    "Statistics",
    "Undelivered",
    "Upcoming",
]
