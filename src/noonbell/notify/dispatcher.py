"""The dispatcher of one lane's notifications.

- It caches the rules: they are read at the start, then every few seconds and whenever something in this process has
  changed them. `notifier` uses the cached rules without reading the store.
- It gives the deliverer its channels: `target("channel:<id>")`. A channel is a stream of the outbox, so its
  notices go one after the other, are tried again when it fails, and end as dead letters; a slow channel holds up only
  itself.
- It counts what a channel does not say (`limits`). The counts are written after each turn of a stream, before its
  messages leave the outbox. A crash in between brings the messages again, and they are known then. At the next turn
  they are read again: engines share a lane, and the stream may have been another's in between.
- When something that was held back is due, it puts a `Flush` into the channel's stream, so that a summary keeps its
  place in the order and is tried again like any notice. At most one is on its way at a time.
- An id may be given again when its channel is deleted, to any team. What was counted for a channel is for that one
  alone, and a notice goes to channels of its own team alone.

A channel's limits are those of one lane: two engines on two lanes have two buckets.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from noonbell.actions.egress import Egress
from noonbell.actions.secrets.secrets import Secrets
from noonbell.background import PeriodicService
from noonbell.core.ids import schedule_of
from noonbell.core.instants import SECOND, instant
from noonbell.core.records import Document, DocumentWrite, OutboxMessage
from noonbell.errors import DeliveryError, DocumentConflictError, NoonbellError, StoreError
from noonbell.notify import channel_limits as limits
from noonbell.notify.channel_limits import ChannelState
from noonbell.notify.channels import ChannelSender
from noonbell.notify.current import current_states
from noonbell.notify.notice_records import CHANNEL, RULE, STATE, TARGET_PREFIX, Flush, Notice, channel_body, state_id
from noonbell.notify.notice_text import RenderedNotice, render, summary_of
from noonbell.notify.notifier import Notifier, RuleBook, make_book, message_for, stream_of
from noonbell.ports import Clock, DocumentFilter, Ledger, ScheduleFilter
from noonbell.store.documents import due_documents, removals

if TYPE_CHECKING:
    from noonbell.monitors.alerts import MonitorFlipped

logger = logging.getLogger("noonbell.notify")

_REFRESH: Final = 5 * SECOND
_FLUSH_AGAIN: Final = 60 * SECOND
_PAGE: Final = 500
_MOST_DUE: Final = 1_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Notice | Flush).decode
_decode_state = msgspec.json.Decoder(ChannelState).decode


async def read_book(store: Ledger) -> RuleBook:
    """All rules and channels of a store, as they are now."""
    rules = await _all(store, RULE)
    return make_book(rules, await _all(store, CHANNEL) if rules else [])


async def _all(store: Ledger, kind: str) -> list[Document]:
    found: list[Document] = []
    while page := await store.documents.find(DocumentFilter(kind), found[-1].id if found else "", _PAGE):
        found += page
        if len(page) < _PAGE:
            break
    return found


class ChannelTarget:
    """One channel as a target of messages."""

    def __init__(self, dispatcher: NotificationDispatcher, channel_id: str) -> None:
        self._dispatcher = dispatcher
        self._channel_id = channel_id
        self._state: ChannelState | None = None
        self._version = 0
        self._changed = False

    def __repr__(self) -> str:
        return f"ChannelTarget({self._channel_id!r})"

    async def deliver(self, body: str) -> None:
        """Send a notice, or count it; returns when that is done."""
        message = _decode(body)
        dispatcher, now = self._dispatcher, self._dispatcher.clock.now()
        document = await dispatcher.channel(self._channel_id)
        if isinstance(message, Flush):
            if document is not None:
                await self._summarise(document, now)
            return
        if document is None or document.team != message.team:
            raise DeliveryError(f'the channel "{self._channel_id}"', "it was deleted")
        channel = channel_body(document)
        if not channel.enabled:
            logger.info("notice dropped channel=%s reason=channel is off", self._channel_id)
            return
        state, rate = await self._loaded(document), channel.most_per_minute
        judgement = limits.judge(state, message, now, rate)
        if judgement == "known":
            return
        if judgement == "send":
            await self._send(document, render(message))
            limits.note_sent(state, message, dispatcher.clock.now(), rate)
        else:
            limits.note_held(state, message, now)
        self._changed = True

    async def _summarise(self, document: Document, now: int) -> None:
        channel = channel_body(document)
        if not channel.enabled:
            return
        state, rate = await self._loaded(document), channel.most_per_minute
        due = limits.due_for_summary(state, now, rate)
        self._changed = True
        if due:
            states = await current_states(self._dispatcher.store, due, document.team)
            await self._send(document, summary_of(self._channel_id, due, now, states))
            limits.note_summarised(state, due, self._dispatcher.clock.now(), rate)

    async def _send(self, document: Document, rendered: RenderedNotice) -> None:
        try:
            await self._dispatcher.sender.send(document, rendered)
        except (DeliveryError, StoreError):
            raise
        except NoonbellError as error:  # a secret that is missing, a kind that is off
            raise DeliveryError(f'the channel "{self._channel_id}"', str(error)) from error

    async def _loaded(self, channel: Document) -> ChannelState:
        state, lane = self._state, self._dispatcher.lane
        if state is None or state.made_for != _made(channel):
            found = await self._dispatcher.store.documents.find(DocumentFilter(STATE, [state_id(channel.id, lane)]))
            self._version = found[0].version if found else 0
            state = _state_of(channel, found[0]) if found else None
            if state is None:
                state = ChannelState(lane, channel.id, made_for=_made(channel))
            self._state = state
        return state

    async def turn_over(self) -> None:
        """Write down what was counted; called before the messages of a turn leave the outbox."""
        state = self._state
        if state is None or not self._changed:
            self._state = None  # the next turn may be another engine's
            return
        dispatcher = self._dispatcher
        write = DocumentWrite(
            STATE, state_id(self._channel_id, dispatcher.lane), "noonbell", _encode(state).decode(), self._version,
            state.due_at,
        )  # fmt: skip
        try:
            (document,) = await dispatcher.store.documents.write([write], dispatcher.clock.now())
        except DocumentConflictError:
            # another engine has claimed the stream in between: what it wrote counts
            logger.warning("channel counts dropped channel=%s reason=changed by another engine", self._channel_id)
            self._state, self._changed = None, False
            return
        self._version, self._state, self._changed = document.version, None, False
        dispatcher.look_at(state.due_at)

    async def close(self) -> None:
        """Do nothing: the open connections belong to the dispatcher."""


class DispatchResult(NamedTuple):
    """The result of a pass: the rules that apply now, and when the next summary is due, if any is."""

    rules: int
    next_at: int | None


class NotificationDispatcher(PeriodicService[DispatchResult]):
    """The notifications of one lane. As a service it reads the rules again and again, and asks for due summaries."""

    def __init__(
        self,
        store: Ledger,
        clock: Clock,
        *,
        lane: str,
        egress: Egress | None = None,
        secrets: Secrets | None = None,
        public_url: str | None = None,
        apprise: bool = False,
    ) -> None:
        super().__init__(clock, _REFRESH)
        self.store = store
        self.clock = clock
        self.lane = lane
        self.notifier = Notifier(lane, public_url=public_url)
        self.sender = ChannelSender(clock, egress=egress, secrets=secrets, apprise=apprise)
        self._targets: dict[str, ChannelTarget] = {}
        self._asked: dict[str, int] = {}  # when a summary was asked for, by state
        self._planned = 0
        self._on_messages: Callable[[], None] = _ignore_messages

    def look_at(self, at: int | None) -> None:
        """Plan a pass at `at`, or sooner."""
        if at is not None and at < self._planned:
            self._wakeup.set()

    # --- rules ----------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read all rules and channels."""
        self.notifier.book = await read_book(self.store)

    async def run_once(self) -> DispatchResult:
        """Read the rules, and ask for the summaries that are due."""
        await self.refresh()
        next_at = await self._ask_for_summaries()
        return DispatchResult(sum(map(len, self.notifier.book.of_team.values())), next_at)

    def next_at(self, result: DispatchResult) -> int:
        latest = super().next_at(result)
        self._planned = latest if result.next_at is None else min(result.next_at, latest)
        return self._planned

    async def _ask_for_summaries(self) -> int | None:
        now = self.clock.now()
        due, next_at = await due_documents(self.store, STATE, now, _MOST_DUE)
        self._asked = {one: at for one, at in self._asked.items() if now - at < _FLUSH_AGAIN}
        states = [(stored, _decode_state(stored.body)) for stored in due if stored.id not in self._asked]
        states = [(stored, state) for stored, state in states if state.lane == self.lane]
        ids = [state.channel_id for _, state in states]
        found = await self.store.documents.find(DocumentFilter(CHANNEL, ids)) if ids else []
        channels = {channel.id: channel for channel in found}
        messages = []
        for stored, state in states:
            channel = channels.get(state.channel_id)
            if channel is None or _state_of(channel, stored) is None:
                await self._drop_state(stored, state)
            elif not channel_body(channel).enabled:
                await self._drop_held(stored, state)
            else:
                self._asked[stored.id] = now
                # the same for as long as it is on its way: what is held back in the meantime is due later
                flush_id = f"{channel.id}:held:{stored.wake_at}"
                if await self.store.outbox.sending(stream_of(channel.id, self.lane), flush_id) is None:
                    body = _encode(Flush(flush_id)).decode()
                    messages.append(message_for(channel.id, self.lane, flush_id, body, now, team=channel.team))
        if messages:
            await self.store.outbox.post(messages, now)
            self._on_messages()
        return next_at

    async def _drop_state(self, stored: Document, state: ChannelState) -> None:
        """Forget what was counted for a channel that was deleted."""
        with contextlib.suppress(DocumentConflictError):  # written concurrently: the next pass reads its new state
            await self.store.documents.write(removed=removals(STATE, [stored.id], stored.version))
            text = "held notices dropped channel=%s notices=%d reason=channel was deleted"
            logger.info(text, state.channel_id, _count(state))

    async def _drop_held(self, stored: Document, state: ChannelState) -> None:
        """Forget what a channel that is off has held back."""
        count = _count(state)
        state.held.clear()
        write = DocumentWrite(STATE, stored.id, stored.team, _encode(state).decode(), stored.version)
        with contextlib.suppress(DocumentConflictError):  # as above
            await self.store.documents.write([write], self.clock.now())
            text = "held notices dropped channel=%s notices=%d reason=channel is off"
            logger.info(text, state.channel_id, count)

    # --- channels -------------------------------------------------------------------------------------------------

    def target(self, name: str) -> ChannelTarget | None:
        """The channel that a message is for, where it is for one."""
        if not name.startswith(TARGET_PREFIX):
            return None
        channel_id = name.removeprefix(TARGET_PREFIX)
        return self._targets.setdefault(channel_id, ChannelTarget(self, channel_id))

    async def channel(self, channel_id: str) -> Document | None:
        found = await self.store.documents.find(DocumentFilter(CHANNEL, [channel_id]))
        return found[0] if found else None

    async def close(self) -> None:
        """Close what is open; the next delivery opens it again."""
        self._targets.clear()
        await self.sender.close()

    # --- dead letters ---------------------------------------------------------------------------------------------

    async def undelivered(self, message: OutboxMessage, attempts: int, error: str, at: int) -> None:
        """Notify by the rules that a message, or a notice, is a dead letter. It is taken when it is in the outbox."""
        if self.notifier.book.is_empty:
            return
        facts = (message, attempts, error, at)
        messages: list[OutboxMessage] = []
        if message.sid < 0:
            notice = _decode(message.body)
            if isinstance(notice, Notice):
                messages = self.notifier.of_dead_notice(notice, *facts)
        else:
            for stored in await self.store.schedules.find(
                ScheduleFilter(schedule_ids=[schedule_of(message.message_id)])
            ):
                messages += self.notifier.of_dead_message(stored, *facts)
        if messages:
            await self.store.outbox.post(messages, at)
            self._on_messages()

    # --- monitors -------------------------------------------------------------------------------------------------

    def deliver_by(self, on_messages: Callable[[], None]) -> None:
        """Set the function to call when there is something to deliver."""
        self._on_messages = on_messages

    async def monitor_flipped(self, flipped: MonitorFlipped) -> None:
        """Put the notices of a monitor's flip into the outbox, by the rules; it is taken when they are there."""
        at = instant(flipped.at)
        notice = Notice(
            f"{flipped.monitor_id}:{flipped.flip_id}/{flipped.event}", flipped.event, at, "monitor", flipped.monitor_id,
            flipped.name, flipped.team, flipped.tags, error=flipped.reason or None, changed=True,
        )  # fmt: skip
        messages = self.notifier.of_flip(notice, flipped.after)
        if messages:
            await self.store.outbox.post(messages, self.clock.now())
            self._on_messages()


def _ignore_messages() -> None:
    pass


def _count(state: ChannelState) -> int:
    return sum(held.count for held in state.held.values())


def _made(channel: Document) -> tuple[str, int]:
    return channel.team, channel.created_at


def _state_of(channel: Document, stored: Document) -> ChannelState | None:
    """Return the counts of this channel, or None if they belong to an earlier one of the same id."""
    state = _decode_state(stored.body)
    if state.made_for is None and stored.created_at >= channel.created_at:  # older versions write no made_for
        state.made_for = _made(channel)
    return state if state.made_for == _made(channel) else None
