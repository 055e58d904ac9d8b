"""The kinds of schedule as arithmetic on instants. Pure, no clock is read."""

from noonbell.timing.bounded import Bounded
from noonbell.timing.cron_timing import CronTiming, cron_timing
from noonbell.timing.interval import IntervalTiming, parse_interval
from noonbell.timing.jitter import jitter_us
from noonbell.timing.one_shot import OneShotTiming, parse_one_shot
from noonbell.timing.quiet_hours import Phase, QuietHours, Stretch, split
from noonbell.timing.quiet_window import Window
from noonbell.timing.retry import RetryPolicy, Strategy
from noonbell.timing.rules_hash import rules_hash
from noonbell.timing.timing_protocol import Look, Timing

__all__ = [
    "Bounded",
    "CronTiming",
    "IntervalTiming",
    "Look",
    "OneShotTiming",
    "Phase",
    "QuietHours",
    "RetryPolicy",
    "Strategy",
    "Stretch",
    "Timing",
    "Window",
    "cron_timing",
    "jitter_us",
    "parse_interval",
    "parse_one_shot",
    "rules_hash",
    "split",
]
