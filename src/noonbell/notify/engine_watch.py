"""The watch of a process without an engine: notifies `no_engine` when no engine of its lane polls any more.

- Every few seconds it reads when an engine of the lane completed a poll last. If that was longer ago than the grace, it
  notifies by the rules with the event `no_engine`, of every team, and `recovered` by the same rules afterwards.
- The notices do not pass through the outbox, which an engine delivers: they are sent from here. The channels that rules
  name are kept in memory with their secrets opened, so that an outage of the database is reported as well. A channel
  that fails is tried again at each look, for an hour.
- A document of the lane records the report, so that processes that share a store report once, and one that is started
  again does not repeat it. It is written before the first try to send, and again after it: if a process dies in
  between, another one sends the report a minute later. While the store is away each process reports by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from noonbell.background import PeriodicService
from noonbell.core.presence import GRACE_SECONDS, EngineHealth, health, seconds_since
from noonbell.core.records import Document, DocumentWrite
from noonbell.errors import DocumentConflictError, NoonbellError, describe_error
from noonbell.notify.channels import ChannelSender, OpenChannel
from noonbell.notify.dispatcher import read_book
from noonbell.notify.notice_records import CHANNEL, ENGINE_REPORT, Event, Notice, RuleBody
from noonbell.notify.notice_text import RenderedNotice, render, written
from noonbell.ports import Clock, DocumentFilter, Ledger
from noonbell.store.documents import removals

logger = logging.getLogger("noonbell.notify")

T = TypeVar("T")

LOOK: Final = 5_000_000
_PATIENCE: Final = 10_000_000  # a store that has not answered by then is away
_TRIED_FOR: Final = 3_600_000_000
_CLAIM: Final = 60_000_000  # a process that has recorded a report has so long to send it
_NEW: Final = 0


class _Pending(NamedTuple):
    """A notice that has not arrived yet."""

    channel: OpenChannel
    rendered: RenderedNotice


class LaneSeen(NamedTuple):
    """The result of a pass: whether the lane is stalled, and the notices that have not arrived yet."""

    stalled: bool
    pending: int


class EngineWatch(PeriodicService[LaneSeen]):
    """Watches the engines of one lane, for a service without an engine."""

    def __init__(
        self, store: Ledger, clock: Clock, sender: ChannelSender, *, lane: str, public_url: str | None = None
    ) -> None:
        super().__init__(clock, LOOK)
        self._store = store
        self._sender = sender
        self._lane = lane
        self._link = None if public_url is None else f"{public_url.rstrip('/')}/instances"
        self._polled = clock.elapsed()  # the newest poll that is known; before the first, when the watch began
        self._grace_seconds = GRACE_SECONDS
        self._seen = False  # a poll has been seen since the watch began
        self._targets: list[tuple[str, RuleBody, OpenChannel]] = []  # team, rule, channel
        self._recorded = False  # the store has a report of this lane, as last seen
        self._alone = False  # reported by this process while the store was away
        self._pending: list[_Pending] = []

    @property
    def poll_age(self) -> float:
        """Return the seconds since an engine of the lane completed a poll, as far as is known here."""
        return self._clock.elapsed() - self._polled

    @property
    def stalled(self) -> bool:
        """Return whether no poll completed within the grace."""
        return self.health == "stalled"

    @property
    def health(self) -> EngineHealth:
        """Return the health of the lane's engines, as far as it is known here."""
        return health(self.poll_age, self._grace_seconds)

    async def run(self, stop: asyncio.Event) -> None:
        """Watch until `stop` is set, beginning with the whole grace."""
        self._polled = self._clock.elapsed()
        try:
            await super().run(stop)
        finally:
            await self._sender.close()

    async def run_once(self) -> LaneSeen:
        """Read the newest poll, and notify where that changes how the lane is doing."""
        await self._watch()
        return LaneSeen(self.stalled, len(self._pending))

    async def _watch(self) -> None:
        await self._send_pending()
        try:
            report = await self._within(self._read())
            await self._judge(report)
        except (NoonbellError, OSError, TimeoutError) as error:
            reason = describe_error(error) if str(error) else "no answer"
            logger.debug("engine watch failed lane=%s reason=%s", self._lane, reason)
            if self.stalled and not (self._recorded or self._alone):
                self._alone = True
                await self._notify("no_engine", f"The database does not answer: {reason}")

    async def _within(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; TimeoutError where that takes too long on our own clock."""
        task = asyncio.ensure_future(work)
        done = asyncio.Event()
        task.add_done_callback(lambda _: done.set())
        try:
            await self._clock.wait(self._clock.now() + _PATIENCE, done)
            if not task.done():
                raise TimeoutError
            return task.result()
        finally:
            task.cancel()

    async def _read(self) -> Document | None:
        """Learn the newest poll and the channels to notify; returns the report of the lane, if there is one."""
        now = self._clock.now()
        polls = (await self._store.engines.polls()).get(self._lane)
        if polls is not None:
            self._grace_seconds = polls.grace_us / 1_000_000
            polled = self._clock.elapsed() - seconds_since(polls.last_poll_at, now)
            self._seen = self._seen or polled > self._polled
            self._polled = max(self._polled, polled)
        found = await self._store.documents.find(DocumentFilter(ENGINE_REPORT, [self._lane]))
        self._recorded = bool(found)
        await self._read_channels()
        return found[0] if found else None

    async def _read_channels(self) -> None:
        book = await read_book(self._store)
        chosen: dict[str, tuple[str, RuleBody]] = {}  # by channel: where several rules name it, the first counts
        for team, rules in book.of_team.items():
            for rule in rules:
                if "no_engine" in rule.on:
                    for channel_id in rule.channels:
                        chosen.setdefault(channel_id, (team, rule))
        documents = await self._store.documents.find(DocumentFilter(CHANNEL, list(chosen))) if chosen else []
        targets = []
        for document in documents:
            try:
                targets.append((*chosen[document.id], await self._sender.open(document)))
            except NoonbellError as error:  # a secret that is missing, a kind that is off
                logger.warning("channel unusable channel=%s reason=%s", document.id, describe_error(error))
        self._targets = targets

    async def _judge(self, report: Document | None) -> None:
        if self.stalled:
            unsent = report is not None and not msgspec.json.decode(report.body)["sent"]
            if report is None or (unsent and report.updated_at + _CLAIM <= self._clock.now()):
                await self._report(_NEW if report is None else report.version)
        elif self._seen and (report is not None or self._alone):
            first = report is None or await self._drop(report.version)
            self._alone = self._recorded = False
            if first:
                await self._notify("recovered", "")

    async def _report(self, version: int) -> None:
        """Record that no engine polls, and notify, unless another process is faster."""
        try:
            version = await self._record(version, sent=self._alone)
            if not self._alone:
                await self._notify("no_engine", "")
                await self._record(version, sent=True)
        except DocumentConflictError:
            logger.debug("another process reports lane=%s", self._lane)
        self._alone, self._recorded = False, True

    async def _drop(self, version: int) -> bool:
        """Take the report away; False where another process was faster."""
        try:
            return bool(await self._store.documents.write(removed=removals(ENGINE_REPORT, [self._lane], version)))
        except DocumentConflictError:
            return False

    async def _record(self, version: int, *, sent: bool) -> int:
        body = msgspec.json.encode({"sent": sent}).decode()
        write = DocumentWrite(ENGINE_REPORT, self._lane, "noonbell", body, version)
        (document,) = await self._store.documents.write([write], self._clock.now())
        return document.version

    # --- sending --------------------------------------------------------------------------------------------------

    async def _notify(self, event: Event, reason: str) -> None:
        now = self._clock.now()
        if event == "no_engine":
            logger.error(
                "no engine lane=%s last_poll_seconds=%.0f reason=%s", self._lane, self.poll_age, reason or "no poll"
            )
            since = written(now - round(self.poll_age * 1_000_000))
            text = f"No poll has completed since {since}. What is due does not run."
            text = f"{text}\n{reason}" if reason else f"{text}\nStart an engine: noonbell serve, or noonbell worker."
        else:
            logger.warning("engine polls again lane=%s", self._lane)
            text = "The catch-up policies decide about the occurrences that came due in between."
        for team, rule, channel in self._targets:
            notice = Notice(
                f"lane:{self._lane}:{now}/{event}", event, now, "lane", self._lane, self._lane, team, error=text,
                link=self._link, title=rule.title, text=rule.text,
            )  # fmt: skip
            self._pending.append(_Pending(channel, render(notice)))
        await self._send_pending()

    async def _send_pending(self) -> None:
        """Try to send what has not arrived: all channels at once, the notices of one in order."""
        by_channel: dict[str, list[_Pending]] = {}
        for one in self._pending:
            if one.rendered.at > self._clock.now() - _TRIED_FOR:
                by_channel.setdefault(one.channel.channel_id, []).append(one)
            else:
                logger.error("notice dropped channel=%s event=%s", one.channel.channel_id, one.rendered.event)
        left = await asyncio.gather(*(self._send_all(pending) for pending in by_channel.values()))
        self._pending = [one for some in left for one in some]

    async def _send_all(self, pending: list[_Pending]) -> list[_Pending]:
        """Send to one channel; returns what is left when one fails."""
        for place, (channel, rendered) in enumerate(pending):
            try:
                await self._sender.send_open(channel, rendered)
            except NoonbellError as error:
                reason = describe_error(error)
                logger.warning(
                    "notice failed channel=%s event=%s reason=%s", channel.channel_id, rendered.event, reason
                )
                return pending[place:]
        return []
