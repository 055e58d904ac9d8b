"""Targets of messages: a function of the program, a Redis stream, a table of PostgreSQL, Celery, an HTTP endpoint.

`declared` reads targets from the settings of the service; the others are one module each, and their libraries are
imported with the first message. Listed here is what programs use.
"""

from noonbell.actions.targets.celery_tasks import CeleryTasks
from noonbell.actions.targets.function import Function
from noonbell.actions.targets.http_endpoint import CONTENT_TYPE, HttpEndpoint
from noonbell.actions.targets.postgres_outbox import PostgresOutbox
from noonbell.actions.targets.redis_stream import RedisStream
from noonbell.actions.targets.registering import as_target
from noonbell.actions.targets.target import BatchTarget, Target, TargetLike, masked

__all__ = [
    "CONTENT_TYPE",
    "BatchTarget",
    "CeleryTasks",
    "Function",
    "HttpEndpoint",
    "PostgresOutbox",
    "RedisStream",
    "Target",
    "TargetLike",
    "as_target",
    "masked",
]
