"""Leases in the database, which decide which engines are alive.

A name is held by a row of `instances` with a token and an end, on the clock of the database. Its holder moves the end
on from a thread of its own with a connection of its own, so that neither a busy event loop nor a busy pool lets it
pass. From the end of a lease on, its holder counts as dead, and every verb that it covers fails. As long as the row
bears its token no other process has taken the name, and so none has begun to clear up after it: it may take the lease
again, and go on. Once another has it, it is lost for good.

Such a verb makes sure inside its own transaction (`still_held`). It shares a lock on the row until it has committed,
and a process that takes over a name has to wait for that: what it reads next includes the last write of the holder
before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import asyncpg

from noonbell.core.instants import EPOCH, MICROSECOND
from noonbell.errors import LeaseLostError, SchedulerInUseError, StoreError, StoreUnavailableError
from noonbell.store.outage import Outage
from noonbell.store.postgres import hints
from noonbell.store.postgres.connection import Connection, translated

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]

logger = logging.getLogger("noonbell.store")

T = TypeVar("T")

DEFAULT_TTL: Final = 15.0
RENEWALS: Final = 3  # in the time of a lease
_JOIN_SECONDS: Final = 5.0
# Clocks that differ by less agree; a difference of more than the second number is logged.
NO_OFFSET_US: Final = 50_000
MUCH_OFFSET_US: Final = 1_000_000

# It waits for the verbs that its last holder has under way: they share a lock on the row.
_TAKE = """
    WITH before AS MATERIALIZED (SELECT name FROM instances WHERE name = $1 FOR UPDATE)
    INSERT INTO instances AS i (name, token, holder, taken_at, expires_at)
    SELECT $1, $2, $3, clock_timestamp(), clock_timestamp() + make_interval(secs => $4)
    FROM (SELECT count(*) FROM before) AS waited
    ON CONFLICT (name) DO UPDATE SET token = excluded.token, holder = excluded.holder, taken_at = clock_timestamp(),
        expires_at = clock_timestamp() + make_interval(secs => $4)
    WHERE i.expires_at <= clock_timestamp()
    RETURNING token, clock_timestamp()
"""
# The row is locked before its end is read: a process that takes the name at this moment is first, or finds it renewed.
# The lock does not conflict with those of the holder's own verbs: a long verb must not keep it from renewing.
_RENEW = """
    WITH ours AS MATERIALIZED (
        SELECT token, expires_at <= clock_timestamp() AS ended FROM instances WHERE token = ANY($1::text[])
        FOR NO KEY UPDATE
    )
    UPDATE instances i SET expires_at = clock_timestamp() + make_interval(secs => $2)
    FROM ours WHERE i.token = ours.token
    RETURNING i.token, ours.ended, clock_timestamp()
"""
# From here on the transaction keeps others from taking the name, so it gets an end of its own: a process that stands
# still between two messages of one statement is ended by no other limit. PostgreSQL knows this one from 17 on.
HELD: Final = """
    SELECT token, CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
        THEN set_config('transaction_timeout', {longest}::text, true) END
    FROM instances WHERE token = ANY({tokens}::text[]) AND expires_at > clock_timestamp() FOR KEY SHARE
"""
_HELD = HELD.format(tokens="$1", longest="$2")


class Lease:
    """A name that is held until it is released, or lost."""

    def __init__(self, name: str, token: str, on_release: Callable[[Lease], None]) -> None:
        self.name = name
        self.token = token
        self._on_release: Callable[[Lease], None] | None = on_release

    def release(self) -> None:
        """Give the name back. The row goes soon after; `close` and the next `hold` of the store wait for that."""
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release(self)


async def answer(future: Future[T]) -> T:
    """Return the answer of the thread of the leases; StoreUnavailableError where it ended before it could."""
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        raise StoreUnavailableError("The store was closed before it answered") from None


class Covered(NamedTuple):
    """The leases that a transaction depends on: they have to last up to its end.

    The transaction may take so many seconds at most, where the server can see to that.
    """

    leases: Sequence[Lease]
    where: str
    longest_seconds: float

    @property
    def tokens(self) -> list[str]:
        return [lease.token for lease in self.leases]

    @property
    def longest(self) -> str:
        return str(max(1, round(self.longest_seconds * 1000)))

    async def require(self, db: Connection, held: Collection[str] | None) -> None:
        """Refuse to go on unless all of the leases are among those that HELD has found.

        Raises:
            LeaseLostError: another has taken one of the names, or had it in between.
            StoreUnavailableError: one has run out, and may be renewed yet.
        """
        lost = [lease.name for lease in self.leases if lease.token not in (held or ())]
        if lost:
            names = ", ".join(f'"{name}"' for name in lost)
            ours = await db.fetch("SELECT token FROM instances WHERE token = ANY($1::text[])", self.tokens)
            kind = StoreUnavailableError if len(ours) == len(self.leases) else LeaseLostError
            raise kind(f"The store {self.where} refused: the lease was lost on {names}; nothing was written")


UNCOVERED: Final = Covered((), "", 0.0)


def held_sql(covered: Covered) -> str:
    """Return HELD with its values, to be sent with the beginning of a transaction; it finds a row for each lease."""
    if not covered.leases:
        return ""
    tokens = ", ".join(f"'{int(lease.token, 16):032x}'" for lease in covered.leases)
    return HELD.format(tokens=f"ARRAY[{tokens}]", longest=f"'{covered.longest}'")


def all_held_sql(covered: Covered) -> str:
    """Return a statement that fails with a division by zero unless all of the leases last."""
    count = len(covered.leases)
    return f"WITH held AS MATERIALIZED ({held_sql(covered)}) SELECT 1 / (count(*) = {count})::int FROM held"


async def still_held(db: Connection, covered: Covered, found: int = 0) -> None:
    """Make sure that the leases last, and raise as `Covered.require` does; `found` is what `held_sql` has found."""
    if found < len(covered.leases):
        await covered.require(db, {row[0] for row in await db.fetch(_HELD, covered.tokens, covered.longest)})


class LeaseKeeper:
    """The thread that keeps the leases of one store."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[_Connection]],
        *,
        ttl_seconds: float,
        where: str,
        on_hint: Callable[[str], None] | None = None,
    ) -> None:
        """`on_hint` is called in the thread, with what others have sent to those who wait (see `hints`)."""
        self.uses = 0  # by the event loop that owns the store alone
        self.listens = False
        self._connect = connect
        self._on_hint = on_hint
        self._ttl = ttl_seconds
        self._where = where
        self._tokens: dict[str, str] = {}  # token to name
        # of its own: it speaks from another thread, and for what it holds a minute is long
        self._outage = Outage("Renewing leases", "it is tried again until their time is up")
        self._db: _Connection | None = None
        self._loop = asyncio.new_event_loop()
        self._busy = asyncio.Lock()
        self._ending = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._offset_us = 0
        self._exchange = (0, 0)  # when the last statement was sent, and when it was answered
        self._watching_since: float | None = None  # when the first name was taken
        self._failing = False  # the last renewal did
        self._troubled_at: float | None = None  # when a renewal failed or came too late, last
        self._thread = threading.Thread(target=self._work, name="noonbell-lease", daemon=True)
        self._thread.start()

    # --- from outside the thread ----------------------------------------------------------------------------------

    @property
    def clock_offset_us(self) -> int:
        """Return how far the database's clock was ahead of this machine's when a name was taken or renewed last.

        It is 0 where that is too little.
        """
        return self._offset_us

    @property
    def in_doubt(self) -> bool:
        """Return whether leases may have run out because the database was away, and not because their holders are dead.

        While renewals fail here they also fail elsewhere; afterwards every holder has the time of a lease to renew its
        own. A process that has just started does not know what happened before. It watches for half a lease first: so
        long living holders need at most to renew theirs once the database is reachable (see `_patience`).
        """
        now = time.monotonic()
        if self._watching_since is None or now - self._watching_since < self._ttl / 2:
            return True
        return self._troubled_at is not None and now - self._troubled_at < self._ttl

    async def take(self, name: str, holder: str) -> str:
        """Take the name and return the token; SchedulerInUseError where another holds it."""
        return await answer(self._submit(self._take(name, holder)))

    def let_go(self, token: str, *, last: bool) -> Future[None]:
        """Delete the lease; with the last one the thread ends."""
        return self._submit(self._let_go(token, last=last))

    def end(self) -> None:
        """End the thread; leases that are left stay behind and run out, as those of a dead process."""
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(_JOIN_SECONDS)

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise StoreUnavailableError(f"The store {self._where} is closed") from None

    # --- inside the thread ----------------------------------------------------------------------------------------

    def _work(self) -> None:
        with (
            contextlib.suppress(asyncio.CancelledError),
            asyncio.Runner(loop_factory=lambda: self._loop) as runner,
        ):
            runner.run(self._keep())

    async def _keep(self) -> None:
        self._keeping = asyncio.current_task()
        pause = self._ttl / RENEWALS
        try:
            while not self._ending.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._ending.wait()
                if self._tokens and not self._ending.is_set():
                    pause = self._ttl / RENEWALS if await self._renewed() else min(1.0, self._ttl / 10)
        finally:
            self._drop()

    def _stop(self) -> None:
        self._ending.set()
        if self._keeping is not None:
            self._keeping.cancel()

    async def _renewed(self) -> bool:
        """Renew. The thread goes on after any error: with it all leases would end, and nothing would report that."""
        try:
            done = await self._renew()
        except Exception:
            self._troubled_at = time.monotonic()
            logger.exception("Renewing the lease on %s met an unexpected error", self._names(list(self._tokens)))
            done = False
        self._failing = not done
        return done

    async def _renew(self) -> bool:
        tokens = list(self._tokens)
        try:
            rows = await self._fetch(_RENEW, tokens, self._ttl)
        except StoreError as error:
            self._troubled_at = time.monotonic()
            self._outage.failed("", f"the lease on {self._names(tokens)} waits: {error}", time.monotonic())
            return False
        self._outage.worked("", time.monotonic())
        if rows:
            self._compare_clocks(rows[0][2])
        again = [row[0] for row in rows if row[1] and row[0] in self._tokens]
        if again:
            self._troubled_at = time.monotonic()
            logger.warning("The lease on %s had ended, and no other process took it: held again", self._names(again))
        renewed = {row[0] for row in rows}
        # one that was released in between is not lost
        for token in [token for token in tokens if token not in renewed and token in self._tokens]:
            name = self._tokens.pop(token)
            logger.error("lease lost, it was not renewed in time and another process has taken it name=%s", name)
        return True

    def _compare_clocks(self, theirs: datetime) -> None:
        """Measure against the middle of the exchange; what its length may have added counts as no difference.

        So a slow exchange that agrees with what was measured before, as far as it can be measured, does not move the
        clock.
        """
        asked_at, answered_at = self._exchange
        doubt_us = NO_OFFSET_US + (answered_at - asked_at) // 1000
        measured = (theirs - EPOCH) // MICROSECOND - (asked_at + answered_at) // 2000
        before = self._offset_us
        if abs(measured - before) > doubt_us:
            self._offset_us = 0 if abs(measured) <= doubt_us else measured
        if abs(self._offset_us) >= MUCH_OFFSET_US > abs(before):
            logger.warning(
                "The clock of %s is %+.1f s off the one here; schedules go by the one of the database", self._where,
                self._offset_us / 1_000_000,
            )  # fmt: skip

    async def _take(self, name: str, holder: str) -> str:
        token = uuid.uuid4().hex
        while True:
            taken = await self._fetch(_TAKE, name, token, holder, self._ttl)
            if taken:
                self._tokens[token] = name
                self._compare_clocks(taken[0][1])
                if self._watching_since is None:
                    self._watching_since = time.monotonic()
                return token
            rows = await self._fetch("SELECT holder, expires_at FROM instances WHERE name = $1", name)
            if rows:
                raise _in_use(name, rows[0][0], rows[0][1])

    async def _let_go(self, token: str, *, last: bool) -> None:
        name = self._tokens.pop(token, None)
        try:
            await self._fetch("DELETE FROM instances WHERE token = $1", token)
        except StoreError as error:
            logger.warning('The lease on "%s" stays until it runs out (%g s): %s', name, self._ttl, error)
        if last:
            self._ending.set()

    async def _fetch(self, sql: str, *bindings: Any) -> list[Any]:
        """Execute one statement, on a connection that is replaced after every failure."""
        async with self._busy:
            try:
                async with asyncio.timeout(self._patience):
                    if self._db is None or self._db.is_closed():
                        self._db = await self._connect()
                        await self._listen(self._db)
                    asked_at = time.time_ns()
                    rows = list(await self._db.fetch(sql, *bindings))
                    self._exchange = (asked_at, time.time_ns())
                    return rows
            except BaseException as error:
                self._drop()
                meaning = translated(error, self._where)
                if meaning is None:
                    raise
                raise meaning from error

    @property
    def _patience(self) -> float:
        """The timeout of a statement in seconds.

        Less after a failure: a network that swallows everything is back before the try that it has swallowed ends, and
        with the pause after that it has to end before others take this holder for dead (`in_doubt`).
        """
        return max(self._ttl / (3 if self._failing else 2), 1.0)

    async def _listen(self, db: _Connection) -> None:
        """Hear of hints where that is possible; leases do without."""
        self.listens = False
        on_hint = self._on_hint
        if on_hint is None or (channel := await hints.channel_for(db)) is None:
            return
        await db.add_listener(channel, lambda _, __, ___, payload: on_hint(str(payload)))
        self.listens = True

    def _drop(self) -> None:
        self.listens = False
        db, self._db = self._db, None
        if db is not None:
            db.terminate()

    def _names(self, tokens: list[str]) -> str:
        return ", ".join(f'"{self._tokens[token]}"' for token in tokens if token in self._tokens)


def _in_use(name: str, holder: str, expires_at: datetime) -> SchedulerInUseError:
    ends = expires_at.astimezone(UTC).isoformat(timespec="seconds")
    error = SchedulerInUseError(name, holder)
    error.args = (f"{error}; its lease ends at {ends} by the database's clock unless it is renewed",)
    error.details = {**error.details, "leaseEndsAt": ends}
    return error
