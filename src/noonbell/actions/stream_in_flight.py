"""A stream in flight: claimed by the deliverer; and the record of a message that it stopped at."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from noonbell.core.ids import schedule_of
from noonbell.core.instants import SECOND
from noonbell.core.records import AuditEvent, Delivery, OutboxMessage, Stream
from noonbell.core.turns import ENGINE
from noonbell.errors import DeliveryError, describe_error

logger = logging.getLogger("noonbell.delivery")

_encode = msgspec.json.Encoder().encode


class StreamInFlight:
    """A stream in flight, and how far it has come."""

    __slots__ = ("away", "claimed_at", "delivery", "failed", "noticed", "size", "stream", "task")

    def __init__(self, stream: Stream, owner: str, now: int) -> None:
        self.stream = stream
        self.claimed_at = now
        self.size = sum(len(message.body) for _, message in stream.messages)
        self.delivery = Delivery(stream.sid, owner, now, None)
        self.failed: OutboxMessage | None = None
        self.away = False  # the target as a whole, or it is not known here; either is logged elsewhere
        self.noticed = False  # the rules were asked about the dead letter
        self.task: asyncio.Task[None] | None = None  # that delivers it

    def copied(self) -> StreamInFlight:
        """A copy that the task of this one does not know."""
        made = StreamInFlight(self.stream, self.delivery.owner, self.claimed_at)
        made.delivery = msgspec.structs.replace(self.delivery)
        made.failed, made.away, made.noticed = self.failed, self.away, self.noticed
        return made


def error_text(error: Exception, mask: Callable[[str], str]) -> str:
    """Return the text of an error, without secrets and safe to write; that of a DeliveryError needs no type name."""
    text = describe_error(error, mask)
    return text.removeprefix(f"{type(error).__name__}: ") if isinstance(error, DeliveryError) else text


def dead_letter_event(served: StreamInFlight) -> AuditEvent | None:
    """The audit event of a dead letter, written in the transaction that makes it one."""
    delivery, message = served.delivery, served.failed
    if message is None or delivery.dead is None:
        return None
    detail = {
        "number": delivery.dead,
        "message_id": message.message_id,
        "target": message.target,
        "attempts": attempts_of(served),
        "error": delivery.error,
    }
    subject = schedule_of(message.message_id)
    return AuditEvent(delivery.at, "message.dead", subject, ENGINE, _encode(detail).decode(), message.team)


def attempts_of(served: StreamInFlight) -> int:
    """Return how often the message that a stream stopped at was tried."""
    return (0 if served.delivery.delivered is not None else served.stream.attempt) + 1


def log_failures(ended: list[StreamInFlight]) -> None:
    """A line for each stream that has stopped at a message."""
    for served in ended:
        delivery, message = served.delivery, served.failed
        if message is None:
            continue
        facts, target, error = _facts(message), message.target, delivery.error
        extra = {"noonbell": {"message_id": message.message_id, "target": target}}
        if served.away:
            logger.debug("delivery waits %s target=%s reason=%s", facts, target, error, extra=extra)
        elif delivery.dead is None:
            pause = max(0, (delivery.wake_at or delivery.at) - delivery.at) / SECOND
            line = "delivery failed %s target=%s retry_seconds=%.0f reason=%s"
            logger.warning(line, facts, target, pause, error, extra=extra)
        else:
            logger.error("dead letter %s target=%s reason=%s", facts, target, error, extra=extra)


def _facts(message: OutboxMessage) -> str:
    """Return what identifies a message: a run's message has the run's id, and a notice has a negative stream."""
    if message.sid < 0:
        return f"notice={message.message_id}"
    return f"schedule={schedule_of(message.message_id)} run={message.message_id}"
