"""Schedules in plain English, both ways, and where clock changes bend them.

`parse` reads what people type and says what it understood; `schedule_fields` gives what a schedule is created with, and
`preview` adds when it comes. `describe` says when an expression fires; `dst_surprises` says on which coming days it
fires twice or not at all. The standard library only; `now` is passed in.
"""

from noonbell.errors import LanguageError
from noonbell.language.describe import describe
from noonbell.language.parsing import looks_like_cron, parse, schedule_fields
from noonbell.language.preview import Preview, preview
from noonbell.language.surprises import Surprise, dst_surprises
from noonbell.language.understood import ScheduleFields, Understood, describe_instant, describe_interval

__all__ = [
    "LanguageError",
    "Preview",
    "ScheduleFields",
    "Surprise",
    "Understood",
    "describe",
    "describe_instant",
    "describe_interval",
    "dst_surprises",
    "looks_like_cron",
    "parse",
    "preview",
    "schedule_fields",
]
