"""A look at a timeline for `noonbell doctor`: whether it answers, may be trusted, and how much it holds."""

from __future__ import annotations

from typing import NamedTuple

from noonbell.errors import NoonbellError
from noonbell.store.opening import open_store
from noonbell.timeline.redis_timeline import RedisTimeline
from noonbell.timeline.timeline_store import kept_namespace


class Checkup(NamedTuple):
    """The result of a check."""

    policy: str | None
    text: str
    do: str


async def examine_timeline(url: str, store: str, lane: str) -> Checkup:
    """Ask the server; raises TimelineError where it cannot be used. Nothing is changed, not in the database either."""
    timeline = RedisTimeline(url)
    try:
        policy = await timeline.link.check_policy()
        if timeline.namespace is None:
            timeline.namespace = await _namespace(store)
        text = f"{timeline.link!r} answers"
        if timeline.namespace is None:
            text += "; no engine has used it yet"
        else:
            waiting, flying = await timeline.counts(lane)
            text += f'; {waiting} schedules of the lane "{lane}" wait in it, {flying} are in flight'
        if policy is None:
            return Checkup(None, f"{text}; it does not report its policy", "Set its maxmemory-policy to noeviction")
        return Checkup(policy, f"{text}; its policy is {policy}", "")
    finally:
        await timeline.close()


async def _namespace(store: str) -> str | None:
    opened = open_store(store, read_only=True)
    try:
        await opened.open()
    except NoonbellError:
        return None  # the check of the database reports it
    try:
        return await kept_namespace(opened)
    finally:
        await opened.close()
