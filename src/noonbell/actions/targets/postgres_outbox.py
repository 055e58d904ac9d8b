"""A table of the user's own PostgreSQL as a target: an outbox, filled in batches.

One statement puts in all that is sent together, in the given order, and passes over ids that are there already: a
repeat after a lost answer changes nothing, for as long as the row is kept. With it goes a NOTIFY, a hint that there is
something to do; a consumer also polls from time to time, since a hint may be lost.

The table is made by its owner, by `outbox_table()`. Nothing here relies on the session, so that a transaction pooler
may be in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noonbell.actions.targets.target import cleaned, masked, require_address, require_seconds, require_text
from noonbell.core.ids import schedule_of
from noonbell.errors import DeliveryError, ScheduleInvalidError, TargetAwayError

if TYPE_CHECKING:
    import asyncpg

    _Connection = asyncpg.Connection[asyncpg.Record]

MOST_TOGETHER: Final = 1_000
DEFAULT_TABLE: Final = "noonbell_messages"

_LONGEST_CHANNEL: Final = 63
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
# Classes of SQLSTATE that any message would meet: the connection, the transaction, the user, the database, the table or
# the statement, resources and state of the server. All others are about a row, also what a trigger makes up.
_AWAY: Final = ("08", "0A", "25", "26", "28", "3D", "3F", "40", "42", "53", "55", "57", "58")
_DENIED: Final = "42501"


class _Event(msgspec.Struct):
    id: str
    type: str
    scheduledfor: str | None = None


_decode = msgspec.json.Decoder(_Event).decode


def outbox_table(table: str = DEFAULT_TABLE) -> str:
    """The statements that make the table."""
    name, short = _quoted(table), table.rpartition(".")[2]
    return f"""CREATE TABLE {name} (
    number        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id    text NOT NULL UNIQUE,
    schedule_id   text NOT NULL,
    type          text NOT NULL,
    scheduled_for timestamptz,
    event         jsonb NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    done_at       timestamptz
);
CREATE INDEX {short}_open ON {name} (number) WHERE done_at IS NULL;
CREATE INDEX {short}_order ON {name} (schedule_id, number) WHERE done_at IS NULL;"""


def _quoted(table: object) -> str:
    """A name that needs no quotes, checked; reserved words among them fail when the table is made."""
    parts = table.split(".") if isinstance(table, str) else []
    if not 1 <= len(parts) <= 2 or not all(_NAME.fullmatch(part) for part in parts):
        raise ScheduleInvalidError(
            "table", table, "must be a name of lowercase letters, digits and _, such as noonbell_messages or app.bell"
        )
    return str(table)


def _is_away(error: Exception) -> bool:
    """Return whether any other message would have failed as well."""
    state = getattr(error, "sqlstate", None)
    if not isinstance(state, str):
        return not isinstance(error, ValueError)  # the driver's word for a value that it cannot send
    if state == _DENIED:
        # A missing grant, or a policy that is against this row: the server has one code for both, and says it in its
        # own language, but names the function that found it.
        return str(getattr(error, "server_source_function", "")).startswith("aclcheck")
    return state.startswith(_AWAY)


class PostgresOutbox:
    """A table that messages are inserted into; see `outbox_table` for its columns.

    `notify` is the channel that is notified of each batch; None sends none. Needs the extra noonbell[postgres].
    The address is the operator's own and does not go through egress.
    """

    most_together = MOST_TOGETHER

    def __init__(
        self, url: str, table: str = DEFAULT_TABLE, *, notify: str | None = DEFAULT_TABLE, timeout: float = 10.0
    ) -> None:
        require_address(url, ("postgresql", "postgres"), "postgresql://db/app")
        if notify is not None:
            require_text("notify", notify)
            if len(notify.encode()) > _LONGEST_CHANNEL:
                raise ScheduleInvalidError(
                    "notify", notify, f"must be a text of up to {_LONGEST_CHANNEL} bytes, or None"
                )
        require_seconds("timeout", timeout)
        self._url = url
        self._table = _quoted(table)
        self._notify = notify
        self._timeout = timeout
        put = (
            f"INSERT INTO {self._table} (message_id, schedule_id, type, scheduled_for, event) "  # noqa: S608 - the name is checked, values are bound
            "SELECT m, s, t, f::timestamptz, e::jsonb FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], "
            "$5::text[]) WITH ORDINALITY AS b (m, s, t, f, e, place) ORDER BY place ON CONFLICT (message_id) DO NOTHING"
        )
        # one statement and so one transaction, also behind a pooler; no notification for a batch that was there already
        notification = "SELECT pg_notify($6, n::text) FROM (SELECT count(*) AS n FROM put) c WHERE n > 0"
        self._put = put if notify is None else f"WITH put AS ({put} RETURNING 1) {notification}"
        self._db: _Connection | None = None
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"PostgresOutbox({masked(self._url)!r}, {self._table!r})"

    async def deliver(self, body: str) -> None:
        await self.deliver_many((body,))

    async def deliver_many(self, bodies: Sequence[str]) -> None:
        events = [_decode(body) for body in bodies]
        values: list[Any] = [
            [event.id for event in events],
            [schedule_of(event.id) for event in events],
            [event.type for event in events],
            [event.scheduledfor for event in events],
            list(bodies),
        ]
        if self._notify is not None:
            values.append(self._notify)
        async with self._turn:
            await self._execute(self._put, *values)

    async def probe(self) -> str:
        async with self._turn:
            await self._execute(
                "SELECT number, message_id, schedule_id, type, scheduled_for, event, created_at, done_at "  # noqa: S608 - the name is checked
                f"FROM {self._table} LIMIT 0"
            )
        return f"answers, and has the table {self._table}"

    async def _execute(self, sql: str, *values: Any) -> None:
        db = await self._connected()
        try:
            await db.execute(sql, *values)
        except Exception as error:  # noqa: BLE001 - what kinds there are is the driver's affair
            text = f"{type(error).__name__}: {cleaned(str(error), self._url)}"
            if not _is_away(error):
                raise DeliveryError(repr(self), text) from None
            self._drop()
            raise TargetAwayError(repr(self), text) from None
        except BaseException:
            self._drop()  # cancelled in the middle: the next answer of the server would belong to no request
            raise

    async def _connected(self) -> _Connection:
        if self._db is not None and not self._db.is_closed():
            return self._db
        try:
            import asyncpg  # noqa: PLC0415 - an extra, and heavy
        except ImportError:
            raise TargetAwayError(repr(self), "asyncpg is not installed; pip install noonbell[postgres]") from None
        try:
            self._db = await asyncpg.connect(
                self._url,
                timeout=self._timeout,
                command_timeout=self._timeout,
                statement_cache_size=0,  # a statement prepared on one server of a pooler is unknown on the next
            )
        except Exception as error:  # noqa: BLE001 - as above
            text = f"{type(error).__name__}: {cleaned(str(error), self._url)}"
            raise TargetAwayError(repr(self), text) from None
        return self._db

    def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.terminate()

    async def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(Exception):  # the server may be gone; there is nothing to be saved
                await db.close(timeout=2)
