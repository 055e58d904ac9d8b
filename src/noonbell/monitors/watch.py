"""The watch: looks at monitors whose time has come, turns them late or down, and has others told.

A look at one monitor:

1. read it, and let `state.passed` say what time has made of it;
2. write that by its version, with the flips, the audit, and the claim to tell what nobody was told yet. Whoever writes
   second finds another version and looks again: the flip is done by then, and the claim is somebody else's;
3. give each flip that is to be told to `Alerts`, oldest first;
4. take those off the monitor.

A crash or a failure after 2 leaves the claim; when it has run out, any watch tells what is left. Any number of watches
may run, in any number of processes. A monitor that cannot be read is told of in the log and put off for an hour, so it
holds up nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from noonbell.core.records import Document, DocumentWrite
from noonbell.errors import DocumentConflictError, MonitorNotFoundError, StoreCorruptError, StoreError, describe_error
from noonbell.monitors.alerts import Alerts, LoggedAlerts, MonitorFlipped
from noonbell.monitors.hearing import hearing_of
from noonbell.monitors.records import moment
from noonbell.monitors.state import passed
from noonbell.monitors.stored import LONGEST_WAIT, MONITOR, Edit, Editor, Stored, Unsent, with_change
from noonbell.ports import Clock, DocumentStore
from noonbell.timing.protocol import SECOND

logger = logging.getLogger("noonbell.monitors")

WATCH_ACTOR: Final = "engine"
_AT_ONCE: Final = 100
_CLAIM: Final = 60 * SECOND
_PUT_OFF: Final = 3600 * SECOND


class Watch:
    """Looks after the monitors of one store; `run` is a duty of an engine."""

    def __init__(self, store: DocumentStore, clock: Clock, alerts: Alerts | None = None) -> None:
        self._store = store
        self._clock = clock
        self._alerts: Alerts = LoggedAlerts() if alerts is None else alerts
        self._editor = Editor(store)
        self._wakeup = asyncio.Event()
        self._stopping = False
        self._hearing = hearing_of(store, clock.now())
        self._began = False

    def wake(self) -> None:
        """Something is due soon, or somebody has to be told: look now."""
        self._wakeup.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Look whenever something is due, until `stop` is set."""
        self._stopping = False
        stopping = asyncio.ensure_future(self._pass_on(stop))
        try:
            while not stop.is_set():
                self._wakeup.clear()
                next_at = await self.look()
                now = self._clock.now()
                if not stop.is_set():
                    latest = now + LONGEST_WAIT
                    await self._clock.wait(latest if next_at is None else min(next_at, latest), self._wakeup)
        finally:
            stopping.cancel()

    async def _pass_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stopping = True
        self._wakeup.set()

    async def look(self) -> int | None:
        """Settle everything that is due by now; returns when the next thing will be."""
        if not self._began:
            self._hearing.interrupt()
            self._began = True
        with self._hearing.asking():
            return await self._settle_due()

    async def _settle_due(self) -> int | None:
        while True:
            now = self._clock.now()
            due, next_at = await self._store.due_documents(MONITOR, now, _AT_ONCE)
            self._hearing.looked(self._clock.now())
            for document in due:
                if not self._stopping:
                    await self._attend(document, now)
            if not due or self._stopping:
                return next_at
            # what was late is down after its grace, and there may be more: ask again
            await asyncio.sleep(0)  # others share this event loop

    async def _attend(self, document: Document, now: int) -> None:
        try:
            await self._judge(document.id, now)
        except MonitorNotFoundError:
            return  # deleted meanwhile
        except StoreCorruptError as error:
            logger.error("%s; it is put off for an hour", error)  # noqa: TRY400 - the message tells all there is
            await self._put_off(document, now)
        except (StoreError, DocumentConflictError):
            raise  # the duty begins again after a pause
        except Exception:
            logger.exception('The monitor "%s" cannot be judged, and is put off for an hour', document.id)
            await self._put_off(document, now)

    async def _put_off(self, document: Document, now: int) -> None:
        write = DocumentWrite(
            document.kind, document.id, document.team, document.body, document.version, now + _PUT_OFF
        )
        try:
            await self._store.put_documents([write], now)
        except DocumentConflictError:
            logger.debug('The monitor "%s" was changed meanwhile', document.id)

    async def _judge(self, monitor_id: str, now: int) -> None:
        telling: tuple[Unsent, ...] = ()

        def step(before: Stored) -> Edit | None:
            nonlocal telling
            change = passed(before.body.rhythm, before.body.state, now, self._hearing.since(now))
            edit = with_change(before, change, noticed_at=now, actor=WATCH_ACTOR)
            claimed = edit.body.claimed_until
            telling = edit.body.unsent if claimed is None or claimed <= now else ()
            if telling:
                body = msgspec.structs.replace(edit.body, claimed_until=now + _CLAIM)
                return Edit(body, edit.beside, edit.audits)
            # one that was put off, or was due by older zone rules, is written for its wake-up alone
            same = change.state is before.body.state and edit.body.wake_at == before.document.wake_at
            return None if same else edit

        _, after = await self._editor.edit(monitor_id, now, step)
        if telling:
            await self._tell(after, telling)

    async def _tell(self, one: Stored, telling: Sequence[Unsent]) -> None:
        told: set[int] = set()
        for unsent in telling:
            try:
                await self._alerts.monitor_flipped(_flipped(one, unsent))
            except Exception as error:
                expected = isinstance(error, StoreError)
                logger.error(  # noqa: TRY400 - a trace only where it tells more
                    'Nobody could be told that the monitor "%s" is %s; trying again in %.0f s: %s', one.body.name,
                    unsent.flip.status, _CLAIM / SECOND, describe_error(error), exc_info=not expected,
                )  # fmt: skip
                break  # what comes after it waits, so that they arrive in order
            told.add(unsent.number)
        if told:
            await self._take_off(one.document.id, told, failed=len(told) < len(telling))

    async def _take_off(self, monitor_id: str, told: set[int], *, failed: bool) -> None:
        def step(before: Stored) -> Edit:
            left = tuple(unsent for unsent in before.body.unsent if unsent.number not in told)
            claimed = before.body.claimed_until if failed else None
            return Edit(msgspec.structs.replace(before.body, unsent=left, claimed_until=claimed))

        await self._editor.edit(monitor_id, self._clock.now(), step)


def _flipped(one: Stored, unsent: Unsent) -> MonitorFlipped:
    flip, body = unsent.flip, one.body
    return MonitorFlipped(
        flip_id=f"{body.key}:{unsent.number}",
        event=unsent.event,
        monitor_id=one.document.id,
        name=body.name,
        team=one.document.team,
        tags=body.tags,
        was=flip.was,
        status=flip.status,
        at=moment(flip.at),
        reason=flip.reason,
        lasted=moment(flip.lasted_us) - moment(0),
        after=unsent.after,
    )
