"""The watch over monitors: turns those that are due late or down, and sends the alerts of that.

For each monitor that is due:

1. read it, and let `state.passed` decide what the passing of time has made of it;
2. write that by its version, with the flips, the audit, and a claim on the alerts that were not sent yet. A watch that
   writes second finds another version and reads again: the flip is done by then, and the claim is another's;
3. give each flip that has an alert to `Alerts`, oldest first;
4. take those off the monitor.

A crash or a failure after 2 leaves the claim; when it has expired, any watch sends what is left. Any number of watches
may run, in any number of processes. A monitor that cannot be read is logged and put off for an hour, so it delays no
other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from noonbell.background import PeriodicService
from noonbell.core.instants import moment
from noonbell.core.records import Document, DocumentWrite
from noonbell.errors import DocumentConflictError, MonitorNotFoundError, StoreCorruptError, StoreError, describe_error
from noonbell.monitors.alerts import Alerts, LoggedAlerts, MonitorFlipped
from noonbell.monitors.monitor_state import passed
from noonbell.monitors.ping_intake import reception_of
from noonbell.monitors.stored_monitors import LONGEST_WAIT, MONITOR, Edit, Editor, Stored, Unsent, with_change
from noonbell.ports import Clock, Ledger
from noonbell.store.documents import due_documents
from noonbell.timing.timing_protocol import SECOND

logger = logging.getLogger("noonbell.monitors")

WATCH_ACTOR: Final = "engine"
_AT_ONCE: Final = 100
_CLAIM: Final = 60 * SECOND
_PUT_OFF: Final = 3600 * SECOND


class WatchResult(NamedTuple):
    """The result of a pass: the monitors that were judged, and when the next one is due, if any is."""

    judged: int
    next_at: int | None


class Watch(PeriodicService[WatchResult]):
    """Watches the monitors of one store: works when one is due, and at least at each interval."""

    def __init__(self, store: Ledger, clock: Clock, alerts: Alerts | None = None) -> None:
        super().__init__(clock, LONGEST_WAIT)
        self._store = store
        self._alerts: Alerts = LoggedAlerts() if alerts is None else alerts
        self._editor = Editor(store)
        self._reception = reception_of(store, clock.now())
        self._began = False

    def next_at(self, result: WatchResult) -> int:
        latest = super().next_at(result)
        return latest if result.next_at is None else min(result.next_at, latest)

    async def run_once(self) -> WatchResult:
        """Settle everything that is due by now."""
        if not self._began:
            self._reception.interrupt()
            self._began = True
        with self._reception.reading():
            return await self._settle_due()

    async def _settle_due(self) -> WatchResult:
        judged = 0
        while True:
            now = self._clock.now()
            due, next_at = await due_documents(self._store, MONITOR, now, _AT_ONCE)
            self._reception.polled(self._clock.now())
            for document in due:
                if not self.stopping:
                    await self._attend(document, now)
                    judged += 1
            if not due or self.stopping:
                return WatchResult(judged, next_at)
            # what was late is down after its grace, and there may be more: ask again
            await asyncio.sleep(0)  # others share this event loop

    async def _attend(self, document: Document, now: int) -> None:
        try:
            await self._judge(document.id, now)
        except MonitorNotFoundError:
            return  # deleted in the meantime
        except StoreCorruptError as error:
            retry = _PUT_OFF // SECOND
            logger.error(  # noqa: TRY400 - a trace adds nothing
                "monitor unreadable monitor=%s retry_seconds=%d reason=%s", document.id, retry, error
            )
            await self._put_off(document, now)
        except (StoreError, DocumentConflictError):
            raise  # the supervisor restarts the watch after a pause
        except Exception:
            logger.exception("monitor failed monitor=%s retry_seconds=%d", document.id, _PUT_OFF // SECOND)
            await self._put_off(document, now)

    async def _put_off(self, document: Document, now: int) -> None:
        write = DocumentWrite(
            document.kind, document.id, document.team, document.body, document.version, now + _PUT_OFF
        )
        try:
            await self._store.documents.write([write], now)
        except DocumentConflictError:
            logger.debug("monitor changed concurrently monitor=%s", document.id)

    async def _judge(self, monitor_id: str, now: int) -> None:
        alerts: tuple[Unsent, ...] = ()

        def step(before: Stored) -> Edit | None:
            nonlocal alerts
            change = passed(before.body.rhythm, before.body.state, now, self._reception.since(now))
            edit = with_change(before, change, noticed_at=now, actor=WATCH_ACTOR)
            claimed = edit.body.claimed_until
            alerts = edit.body.unsent if claimed is None or claimed <= now else ()
            if alerts:
                body = msgspec.structs.replace(edit.body, claimed_until=now + _CLAIM)
                return Edit(body, edit.beside, edit.audits)
            # one that was put off, or was due by older zone rules, is written for its wake-up alone
            same = change.state is before.body.state and edit.body.wake_at == before.document.wake_at
            return None if same else edit

        _, after = await self._editor.edit(monitor_id, now, step)
        if alerts:
            await self._send(after, alerts)

    async def _send(self, one: Stored, alerts: Sequence[Unsent]) -> None:
        sent: set[int] = set()
        for unsent in alerts:
            try:
                await self._alerts.monitor_flipped(_flipped(one, unsent))
            except Exception as error:
                expected = isinstance(error, StoreError)
                logger.error(  # noqa: TRY400 - a trace only where it helps
                    "alert not sent monitor=%s name=%r status=%s retry_seconds=%.0f reason=%s",
                    one.document.id, one.body.name, unsent.flip.status, _CLAIM / SECOND, describe_error(error),
                    exc_info=not expected,
                )  # fmt: skip
                break  # what comes after it waits, so that they arrive in order
            sent.add(unsent.number)
        if sent:
            await self._take_off(one.document.id, sent, failed=len(sent) < len(alerts))

    async def _take_off(self, monitor_id: str, sent: set[int], *, failed: bool) -> None:
        def step(before: Stored) -> Edit:
            left = tuple(unsent for unsent in before.body.unsent if unsent.number not in sent)
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
