"""The selection of a claim of streams: which of those that are due, and how much of each. The same on every store.

Streams come in the order in which they wait, those that wait longest first. Messages are counted in turns, the first of
each stream, then the second of each, and so on, until the bytes are used up: a stream of large messages does not keep
others out. What does not fit is left for the next claim, whole streams too; the very first message always comes.

A stream whose next message is for a target that is known to be away is put off until that is tried again, without its
messages being read. Where no such moment is given, as many as are to try it are brought, each with that message alone,
and the others stay as they are. Those that were tried least come first: one that no target survives is not tried alone
for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Final, NamedTuple

from noonbell.ports import StreamBounds

# How many messages of one stream are claimed together; the rest comes with the next claim.
MOST_TOGETHER: Final = 100
# How many streams are looked at where some may have to be put off, which costs little.
_MOST_LOOKED_AT: Final = 1_000


class DueStream(NamedTuple):
    """A stream that is due, how often its next message was tried, and the target of that where it was asked for."""

    sid: int
    attempt: int
    target: str | None


class Chosen(NamedTuple):
    """Streams that are to be brought, each with the most messages of it; streams to put off: sid, until when, why.

    `crowded` says that others had no room; `left`, that some stay as they are because of their target.
    """

    brought: dict[int, int]
    put_off: list[tuple[int, int, str]]
    crowded: bool
    left: bool


def looked_at(limit: int, bounds: StreamBounds) -> int:
    """Return how many streams that are due a claim looks at."""
    return max(limit, _MOST_LOOKED_AT) if bounds.away else limit


def choose(due: Sequence[DueStream], limit: int, bounds: StreamBounds) -> Chosen:
    """Decide which due streams are brought and which are put off, in the order in which they wait."""
    brought: dict[int, int] = {}
    put_off: list[tuple[int, int, str]] = []
    trying = _trying(due, bounds)
    crowded = left = False
    for sid, _, target in due:
        away = bounds.away.get(target or "")
        if away is not None and away.until is not None:
            put_off.append((sid, away.until, away.error))
        elif away is not None and sid not in trying:
            left = True
        elif len(brought) >= limit:
            crowded = True
        else:
            brought[sid] = MOST_TOGETHER if away is None else 1
    return Chosen(brought, put_off, crowded, left)


def _trying(due: Sequence[DueStream], bounds: StreamBounds) -> set[int]:
    """The streams that try targets which are away."""
    trying: set[int] = set()
    for name, away in bounds.away.items():
        if away.until is None and away.tries:
            candidates = (stream for stream in due if stream.target == name)
            trying.update(stream.sid for stream in nsmallest(away.tries, candidates, key=lambda one: one.attempt))
    return trying
