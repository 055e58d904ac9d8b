"""Schedules in plain English: what an expression means, and where clock changes bend it.

`describe` says when an expression fires; `dst_surprises` says on which coming days it fires twice or not at all.
"""

from noonbell.language.describe import describe
from noonbell.language.surprises import Surprise, dst_surprises

__all__ = ["Surprise", "describe", "dst_surprises"]
