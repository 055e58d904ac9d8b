"""The dispatcher and channels that are deleted, recreated or off: who is notified, what is kept, what is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noonbell.core.records import Document, DocumentWrite, OutboxMessage
from noonbell.errors import DeliveryError
from noonbell.notify import Channels
from noonbell.notify.dispatcher import ChannelTarget, NotificationDispatcher
from noonbell.notify.notice_records import STATE, Flush, Notice
from noonbell.notify.notice_text import RenderedNotice
from noonbell.ports import DocumentFilter, Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.testing import ManualClock
from tests.notify.conftest import NOON

FLUSH = msgspec.json.encode(Flush("f")).decode()


class Office:
    """A dispatcher whose notices go nowhere: `sent` has the team of the channel and the title of each."""

    def __init__(self, store: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.clock = ManualClock(NOON)
        self.channels = Channels(store, self.clock)
        self.desk = NotificationDispatcher(store, self.clock, lane="default")
        self.sent: list[tuple[str, str]] = []
        monkeypatch.setattr(self.desk.sender, "send", self._send)

    async def _send(self, document: Document, rendered: RenderedNotice) -> str:
        self.sent.append((document.team, rendered.title))
        return "200"

    async def channel(self, team: str, channel_id: str = "ops") -> None:
        config = {"url": "https://hook.example", "sign": False}
        await self.channels.create(name=team, kind="webhook", config=config, team=team, channel_id=channel_id)

    def notice(self, number: int, team: str) -> str:
        made = Notice(f"{team}:{number}/failed", "failed", self.clock.now(), "schedule", "job", f"job of {team}", team)
        return msgspec.json.encode(made).decode()

    @property
    def target(self) -> ChannelTarget:
        target = self.desk.target("channel:ops")
        assert target is not None
        return target

    async def turn(self, *bodies: str) -> None:
        for body in bodies:
            await self.target.deliver(body)
        await self.target.turn_over()

    async def ask(self, *, times: int = 1) -> None:
        """Let so many minutes pass after the window, with a look in each."""
        self.clock.step(timedelta(minutes=20))
        for _ in range(times):
            self.clock.step(timedelta(seconds=61))
            await self.desk._ask_for_summaries()

    async def outbox(self) -> list[OutboxMessage]:
        claim = await self.store.outbox.claim("default", "x", self.clock.now(), 10)
        return [message for stream in claim.streams for _, message in stream.messages]

    async def put_back(self, state: Document, *, of_older_version: bool = False) -> None:
        """Write a state as it was before; an older version does not tell which channel it is of."""
        body = msgspec.json.decode(state.body, type=dict[str, Any])
        if of_older_version:
            body.pop("made_for", None)
        write = DocumentWrite(STATE, state.id, state.team, msgspec.json.encode(body).decode(), wake_at=state.wake_at)
        await self.store.documents.write([write], self.clock.now())

    async def states(self) -> list[Document]:
        return await self.store.documents.find(DocumentFilter(STATE), "", 10)


@pytest.fixture(params=["memory", "sqlite"])
async def office(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Office]:
    store: Ledger = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db", threaded=False)
    await store.open()
    made = Office(store, monkeypatch)
    yield made
    await made.desk.close()
    await store.close()


async def test_a_notice_does_not_reach_another_team_that_has_the_id(office: Office) -> None:
    await office.channel("a")
    late = office.notice(1, "a")
    await office.channels.delete("ops")
    for team in ("", "b"):
        if team:
            await office.channel(team)
        with pytest.raises(DeliveryError, match="it was deleted"):
            await office.target.deliver(late)
    await office.channels.update("ops", enabled=False)
    with pytest.raises(DeliveryError):
        await office.target.deliver(late)
    assert office.sent == []


async def test_the_same_team_that_makes_it_again_is_told(office: Office) -> None:
    await office.channel("a")
    late = office.notice(1, "a")
    await office.channels.delete("ops")
    await office.channel("a")
    await office.turn(late)
    assert office.sent == [("a", "job of a failed")]


async def test_what_is_counted_goes_with_the_channel(office: Office) -> None:
    await office.channel("a")
    await office.channel("b", "ops-2")
    await office.turn(office.notice(1, "a"), office.notice(2, "a"))
    other = DocumentWrite(STATE, "ops-2/default", "noonbell", "{}")
    await office.store.documents.write([other, msgspec.structs.replace(other, id="ops/night")], office.clock.now())
    await office.channels.delete("ops")
    assert [state.id for state in await office.states()] == ["ops-2/default"]


@pytest.mark.parametrize("older", [False, True])
async def test_counts_that_outlive_their_channel_are_not_the_next_ones(office: Office, *, older: bool) -> None:
    """A turn that was under way may write them after the deletion."""
    await office.channel("a")
    await office.turn(office.notice(1, "a"), office.notice(2, "a"))
    (before,) = await office.states()
    await office.channels.delete("ops")
    await office.put_back(before, of_older_version=older)
    office.clock.step(timedelta(minutes=20))
    await office.channel("b")
    office.sent.clear()
    await office.turn(FLUSH, office.notice(1, "b"))
    assert office.sent == [("b", "job of b failed")]
    await office.ask()
    assert await office.outbox() == []


async def test_a_channel_that_is_given_again_within_a_turn_begins_anew(office: Office) -> None:
    await office.channel("a")
    for number in (1, 2):
        await office.target.deliver(office.notice(number, "a"))
    await office.channels.delete("ops")
    await office.channel("b")
    office.clock.step(timedelta(minutes=20))
    await office.turn(FLUSH)
    assert office.sent == [("a", "job of a failed")]


async def test_counts_of_an_older_version_are_those_of_their_channel(office: Office) -> None:
    await office.channel("a")
    await office.turn(office.notice(1, "a"), office.notice(2, "a"))
    (before,) = await office.states()
    await office.put_back(before, of_older_version=True)
    await office.ask()
    await office.turn(*[message.body for message in await office.outbox()])
    assert office.sent == [("a", "job of a failed"), ("a", "job of a failed 1 time more")]


async def test_a_summary_is_asked_for_once_and_is_the_teams(office: Office) -> None:
    await office.channel("a")
    await office.turn(office.notice(1, "a"), office.notice(2, "a"))
    await office.ask(times=5)
    (asked,) = await office.outbox()
    assert asked.team == "a"
    await office.turn(asked.body)
    assert office.sent[1:] == [("a", "job of a failed 1 time more")]


async def test_for_a_channel_that_is_gone_nothing_is_asked(office: Office) -> None:
    await office.channel("a")
    await office.turn(office.notice(1, "a"), office.notice(2, "a"))
    (before,) = await office.states()
    await office.channels.delete("ops")
    await office.put_back(before)
    await office.ask()
    assert (await office.outbox(), await office.states()) == ([], [])
    await office.turn(FLUSH)  # one that was on its way has nothing to tell


async def test_a_channel_that_is_off_forgets_what_it_held_back(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    await office.channel("a")
    await office.turn(office.notice(1, "a"), office.notice(2, "a"))
    await office.channels.update("ops", enabled=False)
    caplog.set_level("INFO", "noonbell.notify")
    await office.turn(FLUSH)
    assert caplog.messages == []
    await office.ask(times=3)
    assert caplog.messages == ["held notices dropped channel=ops notices=1 reason=channel is off"]
    assert await office.outbox() == []
    await office.channels.update("ops", enabled=True)
    await office.ask()
    assert (await office.outbox(), len(office.sent)) == ([], 1)
