"""The cron language: POSIX expressions and exact arithmetic on them across clock changes.

Pure: the standard library only, no I/O, no clock. `parse` a text, then ask the CronExpression.
"""

from noonbell.cron.cron_fields import FIELD_NAMES, FIELD_RANGES
from noonbell.cron.dialects import translate
from noonbell.cron.expression import CronExpression, DstPolicy
from noonbell.cron.parser import parse, parse_field
from noonbell.cron.zones import Segment, Zone, zone_of

__all__ = [
    "FIELD_NAMES",
    "FIELD_RANGES",
    "CronExpression",
    "DstPolicy",
    "Segment",
    "Zone",
    "parse",
    "parse_field",
    "translate",
    "zone_of",
]
