"""The Redis timeline: a sorted set that answers 'what is due by now' in front of the database.

`RedisTimeline` is the set itself, `with_timeline` puts it in front of a store. It adds speed and no promise: the
database is asked about everything that the set brings up, and finds by itself what the set has lost.
"""

from noonbell.timeline.redis_timeline import RedisTimeline
from noonbell.timeline.timeline_store import TimelineStore, with_timeline

__all__ = ["RedisTimeline", "TimelineStore", "with_timeline"]
