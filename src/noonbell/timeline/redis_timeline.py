"""The set: which schedules of a lane wake when, for the next minutes, over one or several sorted sets.

    put    wake these then, or sooner where they are in the set already; other engines are notified of the earliest
    pop    take what is due, under a lease of two seconds; what was taken and not acknowledged in time comes again
    ack    what was taken wakes again then, or not at all
    drop   these wake for nothing any more
    feed   fill the set from the database, page by page (`begin_feed`, `feed`, `end_feed`)

Each verb is one script for each shard that it touches (`scripts`). None keeps a promise: see `fronted`, which asks the
database about everything that is popped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from noonbell.errors import TimelineError
from noonbell.timeline import scripts
from noonbell.timeline.address import read_address
from noonbell.timeline.link import Link

LEASE_US: Final = 2_000_000
REPAIR_US: Final = 2_000_000
_FEED_LEASE_US: Final = 30_000_000
_TIMEOUT: Final = 0.5
_EXACT: Final = 1 << 53
_CHUNK: Final = 5_000
_AT_ONCE: Final = 32  # shards that are asked side by side


class Popped(NamedTuple):
    """The schedules that were taken, and the state of the set."""

    sids: list[int]
    strange: list[bytes]  # members that are not ids; they were removed
    next_at: int | None  # the smallest score that is left
    until: int | None  # what the set is whole up to; None: it has been lost, or was never filled
    repair: bool  # the caller is to search the database for what is overdue
    repaired_at: int | None


class RedisTimeline:
    """Sorted sets on a Redis server, one for each shard of each lane.

    `namespace` keeps the sets of several databases on one server apart. `timeout` is how many seconds a single step of
    a command may take, and a script twice that.
    """

    def __init__(
        self, url: str, *, shards: int | None = None, namespace: str | None = None, timeout: float = _TIMEOUT
    ) -> None:
        address = read_address(url)
        if shards is not None and (type(shards) is not int or not 1 <= shards <= 1024):
            raise TimelineError(f"shards {shards!r} must be a whole number from 1 to 1024")
        if not 0 < timeout <= 1:
            raise TimelineError(f"timeout {timeout!r} must be a number of seconds above 0, and 1 at most")
        self.shards = address.shards if shards is None else shards
        self.namespace = address.namespace if namespace is None else namespace
        self._first = 0
        self.link = Link(address.url, timeout=timeout, connections=address.connections)

    def __repr__(self) -> str:
        return f"RedisTimeline({self.link!r})"

    async def close(self) -> None:
        await self.link.close()

    # --- keys -----------------------------------------------------------------------------------------------------

    def keys(self, lane: str, shard: int) -> tuple[str, str, str]:
        """due, flight and state of a shard: one hash tag, so that a cluster keeps them together."""
        name = f"{quote(self.namespace or '', safe='')}:{quote(lane, safe='')}:{shard}/{self.shards}"
        return f"noonbell:{{{name}}}:due", f"noonbell:{{{name}}}:flight", f"noonbell:{{{name}}}:state"

    def channel(self, lane: str) -> str:
        """The channel on which hints of earlier wake-ups are published."""
        return f"noonbell:{quote(self.namespace or '', safe='')}:{quote(lane, safe='')}:sooner"

    def _apart(self, times: Iterable[tuple[int, Any]]) -> dict[int, list[Any]]:
        """Arguments of a script, by shard."""
        found: dict[int, list[Any]] = {}
        for sid, at in times:
            found.setdefault(sid % self.shards, []).extend((sid, "" if at is None else max(at, 0)))
        return found

    # --- verbs ----------------------------------------------------------------------------------------------------

    async def put(self, lane: str, times: Mapping[int, int], *, hint: bool = True) -> None:
        channel = self.channel(lane) if hint else ""
        apart = self._apart((sid, at) for sid, at in times.items() if at < _EXACT)
        await self._run_all(
            (scripts.PUT, self.keys(lane, shard)[:1], (channel, *part))
            for shard, arguments in apart.items()
            for part in _chunks(arguments)
        )

    async def pop(self, lane: str, now: int, limit: int, *, repair: bool = False, lease_us: int = LEASE_US) -> Popped:
        """Take up to `limit` members that are due; over several shards, about as many from each.

        What is too much by then goes back as due now. Another shard comes first each time, so that none is forgotten.
        """
        each = -(-limit // self.shards)
        arguments = (now, now + lease_us, each, int(repair), REPAIR_US)
        answers = await self._run_all((scripts.POP, self.keys(lane, shard), arguments) for shard in range(self.shards))
        sids: list[int] = []
        strange: list[bytes] = []
        self._first = (self._first + 1) % self.shards
        for shard in (*range(self._first, self.shards), *range(self._first)):
            answer = answers[shard]
            wrong = [member for member in answer[0] if not self._is_id(member, shard)]
            sids += map(int, set(answer[0]).difference(wrong) if wrong else answer[0])
            if wrong:
                await self._remove(lane, {shard: wrong})
                strange += wrong
        left = [_instant(answer[1]) for answer in answers]
        if len(sids) > limit:
            left.append(await self.ack(lane, dict.fromkeys(sids[limit:], now)))
        return Popped(
            sids[:limit],
            strange,
            min((at for at in left if at is not None), default=None),
            _least([_instant(answer[2]) for answer in answers]),
            # the first shard speaks for all: the search of the database knows no shards
            bool(answers[0][4]),
            _instant(answers[0][5]),
        )

    def _is_id(self, member: bytes, shard: int) -> bool:
        """Return whether it is a sid of this shard, spelt as we spell it."""
        plain = member.isdigit() and len(member) <= 19 and not member.startswith(b"0")
        return plain and int(member) % self.shards == shard and int(member) < 1 << 63

    async def ack(self, lane: str, times: Mapping[int, int | None]) -> int | None:
        """Give back what was popped; returns the smallest score of the shards that it touched."""
        exact = ((sid, None if at is None or at >= _EXACT else at) for sid, at in times.items())
        earliest = await self._run_all(
            (scripts.ACK, self.keys(lane, shard)[:2], part)
            for shard, arguments in self._apart(exact).items()
            for part in _chunks(arguments)
        )
        return min((at for at in map(_instant, earliest) if at is not None), default=None)

    async def drop(self, lane: str, sids: Iterable[int]) -> None:
        apart: dict[int, list[Any]] = {}
        for sid in sids:
            apart.setdefault(sid % self.shards, []).append(sid)
        await self._remove(lane, apart)

    async def _remove(self, lane: str, members: Mapping[int, Sequence[Any]]) -> None:
        await self._run_all(
            (scripts.DROP, self.keys(lane, shard)[:2], part)
            for shard, some in members.items()
            for part in _chunks(some)
        )

    async def _run_all(self, asked: Iterable[tuple[scripts.Script, Sequence[str], Sequence[Any]]]) -> list[Any]:
        """Run scripts side by side, as many as are good for a server; none goes on once this is over."""
        answers: list[Any] = []
        waiting = iter(asked)
        while some := tuple(islice(waiting, _AT_ONCE)):
            batch = await asyncio.gather(*(self.link.run(*one) for one in some), return_exceptions=True)
            for failed in batch:
                if isinstance(failed, BaseException):
                    raise failed
            answers += batch
        return answers

    # --- filling --------------------------------------------------------------------------------------------------

    async def whole_until(self, lane: str) -> tuple[int | None, int | None]:
        """Return up to when the set knows all that wakes, and when it was last built; None where it is not whole."""
        states = [
            await self.link.command("HMGET", state, "until", "built")
            for _, _, state in (self.keys(lane, shard) for shard in range(self.shards))
        ]
        return _least([_instant(one[0]) for one in states]), _least([_instant(one[1]) for one in states])

    async def begin_feed(self, lane: str, token: str, now: int) -> bool:
        """Return whether the caller may fill the set: False while another engine fills it."""
        for shard in range(self.shards):
            state = self.keys(lane, shard)[2]
            if not await self.link.run(scripts.BEGIN_FEED, (state,), (token, now, now + _FEED_LEASE_US)):
                await self.end_feed(lane, token)
                return False
        return True

    async def feed(self, lane: str, token: str, times: Iterable[tuple[int, int]], now: int) -> bool:
        """Put a page into the set. False: what was begun counts no more, since the server has lost its keys."""
        accepted = await self._run_all(
            (scripts.FEED, self.keys(lane, shard)[::2], (token, now + _FEED_LEASE_US, *part))
            for shard, arguments in self._apart((sid, at) for sid, at in times if at < _EXACT).items()
            for part in _chunks(arguments)
        )
        return all(accepted)

    async def end_feed(self, lane: str, token: str, until: int | None = None, built: int | None = None) -> bool:
        """The set is whole up to `until`; without it the filling is given up. False as for `feed`."""
        arguments = (token, "" if until is None else until, "" if built is None else built)
        accepted = await self._run_all(
            (scripts.END_FEED, self.keys(lane, shard)[2:], arguments) for shard in range(self.shards)
        )
        return all(accepted)

    async def forget(self, lane: str) -> None:
        """Delete all keys of a lane, whatever they hold."""
        for shard in range(self.shards):
            for key in self.keys(lane, shard):
                await self.link.command("DEL", key)

    async def counts(self, lane: str) -> tuple[int, int]:
        """Return how many members wait, and how many are in flight."""
        waiting = flying = 0
        for shard in range(self.shards):
            due, flight, _ = self.keys(lane, shard)
            waiting += int(await self.link.command("ZCARD", due))
            flying += int(await self.link.command("ZCARD", flight))
        return waiting, flying


def _instant(value: Any) -> int | None:
    """Return a score or a field of the state; anything but a number counts as absent."""
    if value in (None, b"", ""):
        return None
    try:
        return int(float(value)) if b"." in value or b"e" in value or b"n" in value else int(value)
    except (OverflowError, TypeError, ValueError):
        return None


def _least(instants: Sequence[int | None]) -> int | None:
    """The earliest; None where one is missing."""
    known = [at for at in instants if at is not None]
    return min(known) if len(known) == len(instants) else None


def _chunks(arguments: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """Parts of an even length: no script is to keep the server busy for long."""
    return (arguments[begin : begin + 2 * _CHUNK] for begin in range(0, len(arguments), 2 * _CHUNK))
