"""The terms of an epoch, read from the text of its policies. Nothing in it is trusted.

Declared tasks keep nothing there but how they take clock changes; what else holds for them is the same for all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from noonbell.cron import DstPolicy
from noonbell.ledger.reading import is_instant


class Terms(NamedTuple):
    """What was agreed for an epoch; `durable` tells it from a declared task's."""

    durable: bool = False
    kind: str = "cron"
    catch_up: str = "run_once"
    cap: int = 10
    overlap: str = "coalesce"
    retry_vs_new: str = "preempt"
    dst: DstPolicy = "literal"
    start_at: int | None = None
    end_at: int | None = None
    jitter_us: int = 0
    anchor_at: int | None = None  # what an interval counted from when the epoch began
    quiet_hours_policy_id: str | None = None
    at_most_once: bool = False
    message_to: str | None = None  # where its action is to send a message: the target


@lru_cache(maxsize=4_096)
def _read(policies: str) -> Terms:
    try:
        stored = msgspec.json.decode(policies)
    except msgspec.DecodeError:
        return Terms()
    if not isinstance(stored, dict):
        return Terms()
    dst: DstPolicy = "once" if stored.get("dst") == "once" else "literal"
    definition = stored.get("definition")
    if not isinstance(definition, dict):
        return Terms(dst=dst)
    return Terms(
        durable=True,
        kind=_text(stored.get("type"), "cron"),
        catch_up=_text(stored.get("catch_up"), "skip"),
        cap=_number(definition.get("cap"), 10),
        overlap=_text(definition.get("overlap"), "coalesce"),
        retry_vs_new=_text(definition.get("retry_vs_new"), "finish"),
        dst=dst,
        start_at=_instant(definition.get("start_at")),
        end_at=_instant(definition.get("end_at")),
        jitter_us=_number(definition.get("jitter_us"), 0),
        anchor_at=_instant(stored.get("anchor_at")),
        quiet_hours_policy_id=_text(stored.get("quiet_hours_policy_id"), "") or None,
        at_most_once=definition.get("at_most_once") is True,
        message_to=_target(definition.get("action")),
    )


def terms_of(policies: object) -> Terms:
    """The terms in an epoch's stored policies."""
    return _read(policies) if isinstance(policies, str) else Terms()


def _target(action: Any) -> str | None:
    sends = isinstance(action, dict) and action.get("kind") == "message"
    return _text(action.get("to"), "") if sends else None


def _text(value: Any, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise


def _number(value: Any, otherwise: int) -> int:
    return value if type(value) is int and value >= 0 else otherwise


def _instant(value: Any) -> int | None:
    return value if is_instant(value) else None
