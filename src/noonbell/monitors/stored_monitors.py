"""The documents of monitors in the store, and the one way to change a monitor.

- `monitor`: the definition, the state, how many pings and flips there were, and the flips that are not sent yet.
  Its version makes every flip happen once: the second writer finds another version, reads again and finds
  the flip done. Its wake_at is when the watch has to look at it.
- `monitor_token`: from the hash of a token to the monitor. The monitor itself holds the token, because its URL has
  to be shown again; it lets people ping and nothing else. The index holds a hash, so that nothing can be learnt of
  tokens from how long a look-up takes.
- `monitor_ping`, `monitor_flip`: the last ones of each monitor, one document each, in numbered slots that are used
  again and again. They are written in the transaction that changes the monitor.

The slots carry the monitor's `key`, which no other ever has, so that one with the same id as a deleted one inherits
nothing from it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from noonbell.core.records import AT_ONCE, AuditEvent, Document, DocumentWrite
from noonbell.errors import DocumentConflictError, MonitorNotFoundError, StoreCorruptError
from noonbell.monitors.alerts import AlertEvent, alerts_of
from noonbell.monitors.monitor_state import Change, Flip, PingKind, PingSchedule, State, deadlines
from noonbell.ports import DocumentFilter, Ledger
from noonbell.timing.timing_protocol import SECOND

MONITOR: Final = "monitor"
TOKEN: Final = "monitor_token"  # noqa: S105 - the name of a kind of document
PING: Final = "monitor_ping"
FLIP: Final = "monitor_flip"
KEPT: Final = {PING: 50, FLIP: 200}
# A watch looks this often, whatever it knows: other processes change monitors without a word.
LONGEST_WAIT: Final = 5 * SECOND
# Flips that could not be sent are kept up to this many; beyond it the oldest are only in the history.
MOST_UNSENT: Final = 50
_MOST_TRIES: Final = 100

_encode = msgspec.json.Encoder().encode


class Unsent(msgspec.Struct, frozen=True):
    """A flip that is still to be passed to `Alerts`."""

    number: int
    event: AlertEvent
    flip: Flip
    after: AlertEvent | None = None


class Body(msgspec.Struct, frozen=True):
    """The body of a monitor's document."""

    name: str
    tags: tuple[str, ...]
    rhythm: PingSchedule
    state: State
    token: str
    key: str
    pings: int = 0
    flips: int = 0
    unsent: tuple[Unsent, ...] = ()
    claimed_until: int | None = None  # until then one process has the right to send what is unsent
    notified: AlertEvent | None = None  # the last event of it that others are notified of

    @property
    def wake_at(self) -> int | None:
        """Return when the watch has to judge it next."""
        moments = [deadlines(self.rhythm, self.state).next_at]
        if self.unsent:
            moments.append(AT_ONCE if self.claimed_until is None else self.claimed_until)
        return min((at for at in moments if at is not None), default=None)


class KeptPing(msgspec.Struct, frozen=True):
    """The body of a ping's document."""

    number: int
    at: int
    kind: PingKind
    exit_code: int | None = None
    run: str = ""
    ran_for_us: int | None = None
    body: str = ""
    cut: bool = False


class KeptFlip(msgspec.Struct, frozen=True):
    """The body of a flip's document."""

    number: int
    flip: Flip


_read_body = msgspec.json.Decoder(Body).decode
read_ping = msgspec.json.Decoder(KeptPing).decode
read_flip = msgspec.json.Decoder(KeptFlip).decode


class Stored(msgspec.Struct, frozen=True):
    """A monitor as it was read."""

    document: Document
    body: Body


class Edit(msgspec.Struct, frozen=True):
    """A change of a monitor: its new body, the documents written with it, and its audit events."""

    body: Body
    beside: tuple[DocumentWrite, ...] = ()
    audits: tuple[AuditEvent, ...] = ()


def stored(document: Document) -> Stored:
    try:
        return Stored(document, _read_body(document.body))
    except msgspec.MsgspecError as error:
        raise StoreCorruptError(f'The monitor "{document.id}" cannot be read: {error}', document=document.id) from error


def token_id(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def token_write(token: str, monitor_id: str, team: str) -> DocumentWrite:
    return DocumentWrite(TOKEN, token_id(token), team, _encode(monitor_id).decode())


def token_owner(document: Document) -> str:
    return msgspec.json.decode(document.body, type=str)


def slot_ids(kind: str, key: str, count: int) -> list[str]:
    """The ids under which the last ones of a monitor are kept; `count` is how many there have been."""
    kept = KEPT[kind]
    return [_slot(kind, key, number) for number in range(max(0, count - kept), count)]


def _slot(kind: str, key: str, number: int) -> str:
    return f"{key}:{number % KEPT[kind]:04d}"


# --- edits ------------------------------------------------------------------------------------------------------------


def body_write(document: Document, body: Body) -> DocumentWrite:
    text = _encode(body).decode()
    return DocumentWrite(MONITOR, document.id, document.team, text, document.version, body.wake_at)


def with_change(before: Stored, change: Change, *, noticed_at: int, actor: str) -> Edit:
    """The monitor after a change of its state: its flips get their numbers, their place in the history, the audit."""
    document, body = before.document, before.body
    beside, audits = [], []
    for place, flip in enumerate(change.flips):
        number = body.flips + place
        text = _encode(KeptFlip(number, flip)).decode()
        beside.append(DocumentWrite(FLIP, _slot(FLIP, body.key, number), document.team, text))
        audits.append(_flip_audit(document, flip, noticed_at, actor))
    events = alerts_of(change.flips, body.notified)
    unsent = list(body.unsent)
    unsent += [Unsent(body.flips + place, event, change.flips[place], last) for place, event, last in events]
    after = msgspec.structs.replace(
        body,
        state=change.state,
        flips=body.flips + len(change.flips),
        unsent=tuple(unsent[-MOST_UNSENT:]),
        notified=events[-1][1] if events else body.notified,
    )
    return Edit(after, tuple(beside), tuple(audits))


def with_ping(before: Stored, edit: Edit, ping: KeptPing) -> Edit:
    """The same edit with a ping that is kept."""
    write = DocumentWrite(PING, _slot(PING, before.body.key, ping.number), before.document.team, _encode(ping).decode())
    body = msgspec.structs.replace(edit.body, pings=ping.number + 1)
    return Edit(body, (*edit.beside, write), edit.audits)


def audit(event: str, monitor_id: str, at: int, actor: str, detail: Any, *, team: str) -> AuditEvent:
    return AuditEvent(at, f"monitor.{event}", monitor_id, actor, _encode(detail).decode(), team)


def _flip_audit(document: Document, flip: Flip, noticed_at: int, actor: str) -> AuditEvent:
    event = "resumed" if flip.was == "paused" else flip.status
    detail = {
        "from": flip.was,
        "to": flip.status,
        "at": flip.at,
        "reason": flip.reason,
        "lasted_seconds": flip.lasted_us / SECOND,
    }
    return audit(event, document.id, noticed_at, actor, detail, team=document.team)


# --- changing ---------------------------------------------------------------------------------------------------------


class Editor:
    """Changes monitors by their version: on a conflict it reads the monitor again.

    Those of one process wait for each other instead, so that a burst of pings does not spend itself in trying again.
    """

    def __init__(self, store: Ledger) -> None:
        self._store = store
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def find(self, monitor_ids: Sequence[str]) -> list[Stored]:
        return [stored(document) for document in await self._store.documents.find(DocumentFilter(MONITOR, monitor_ids))]

    async def edit(self, monitor_id: str, at: int, step: Callable[[Stored], Edit | None]) -> tuple[Stored, Stored]:
        """Let `step` say what becomes of it, and write that whole; returns it as it was and as it is.

        None leaves it alone. Raises MonitorNotFoundError where there is none, and what `step` raises.
        """
        lock = self._locks.setdefault(monitor_id, asyncio.Lock())
        async with lock:
            for left in reversed(range(_MOST_TRIES)):
                found = await self.find([monitor_id])
                if not found:
                    raise MonitorNotFoundError(monitor_id)
                (before,) = found
                edit = step(before)
                if edit is None:
                    return before, before
                writes = [body_write(before.document, edit.body), *edit.beside]
                try:
                    document, *_ = await self._store.documents.write(writes, at, edit.audits)
                except DocumentConflictError as error:
                    if error.kind != MONITOR or not left:
                        raise
                else:
                    return before, Stored(document, edit.body)
        raise AssertionError("unreachable: the last try raises")
