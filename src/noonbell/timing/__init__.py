"""When things happen: the kinds of schedule as arithmetic on instants. Pure, no clock is read."""

from noonbell.timing.cron_timing import CronTiming, Look, cron_timing
from noonbell.timing.zone_rules import rules_hash

__all__ = ["CronTiming", "Look", "cron_timing", "rules_hash"]
