"""Rules: what is refused, and that somebody who has none pays nothing."""

from __future__ import annotations

from typing import Any

import pytest

from noonbell.errors import RuleInvalidError
from noonbell.monitors import MonitorFlipped
from noonbell.notify import Channels, NotificationDispatcher, Rules
from noonbell.notify.notice_records import TARGET_PREFIX
from noonbell.notify.notifier import Notifier, stream_of
from noonbell.notify.rules import read_rule
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from tests.actions.conftest import start_at, stored_with
from tests.notify.conftest import NOON

GOOD: dict[str, Any] = {"name": "r", "on": ["failed"], "channels": ["ops"]}


@pytest.mark.parametrize(
    ("changes", "field", "right"),
    [
        ({"on": []}, "on", "some of failed"),
        ({"on": "failed"}, "on", "a list"),
        ({"on": ["broken"]}, "on", "is not an event"),
        ({"channels": []}, "channels", "1 to 20"),
        ({"on": ["late"]}, "late_seconds", "is missing"),
        ({"slow_seconds": 5}, "slow_seconds", "not among"),
        ({"on": ["slow"], "slow_seconds": -1}, "slow_seconds", "from 0"),
        ({"window_seconds": True}, "window_seconds", "number of seconds"),
        ({"tag": "a", "schedule_id": "s"}, "tag", "make two rules"),
        ({"monitor_id": "m", "on": ["missed"]}, "on", "is not an event of a monitor"),
        ({"title": "{{nane}} failed"}, "title", "{{name}}"),
        ({"chanels": ["x"]}, "chanels", "did you mean channels?"),
        ({"name": " "}, "name", "not blank"),
    ],
)
def test_a_refusal_names_the_field_and_what_is_right(changes: dict[str, Any], field: str, right: str) -> None:
    with pytest.raises(RuleInvalidError) as refused:
        read_rule(GOOD | changes, None)
    assert refused.value.field == field
    assert right in str(refused.value)


async def test_a_rule_must_be_able_to_tell_somebody() -> None:
    store, clock = MemoryStore(), ManualClock(NOON)
    await store.open()
    await Channels(store, clock).create(
        name="x", kind="webhook", config={"url": "https://x.org"}, team="blue", channel_id="ops"
    )
    rules = Rules(store, clock)
    with pytest.raises(RuleInvalidError, match='is not a channel of the team "default"'):
        await rules.create(name="r", on=["failed"], channels=["ops"])
    with pytest.raises(RuleInvalidError, match="is not a schedule"):
        await rules.create(name="r", on=["failed"], channels=["ops"], team="blue", schedule_id="nope")
    with pytest.raises(RuleInvalidError, match="is not a monitor"):
        await rules.create(name="r", on=["failed"], channels=["ops"], team="blue", monitor_id="nope")


def test_without_rules_nothing_is_asked_or_told() -> None:
    notifier = Notifier("default")
    stored, start = stored_with({"kind": "callback", "name": "x"}), start_at(attempt=2)
    assert not notifier.unsure(stored, start)
    assert notifier.book.is_empty


def test_streams_of_channels_are_negative_and_apart() -> None:
    numbers = {stream_of(channel, lane) for channel in ("a", "b", "a/x") for lane in ("one", "two")}
    assert len(numbers) == 6
    assert all(-(2**63) <= number < 0 for number in numbers)


async def test_a_monitor_that_flips_is_told_by_the_same_rules() -> None:
    store, clock = MemoryStore(), ManualClock(NOON)
    await store.open()
    await Channels(store, clock).create(name="x", kind="webhook", config={"url": "https://x.org"}, channel_id="ops")
    await Rules(store, clock).create(name="r", on=["failed"], channels=["ops"], tag="night")
    desk = NotificationDispatcher(store, clock, lane="default")
    await desk.refresh()
    for number, event in enumerate(("failed", "recovered")):
        await desk.monitor_flipped(
            MonitorFlipped(
                flip_id=f"k:{number}", event=event, monitor_id="m", name="backup", team="default", tags=("night",),  # type: ignore[arg-type]  # two of the events
                was="up", status="down", at=clock.at, reason="no ping came", lasted=clock.at - NOON,
            )
        )  # fmt: skip
    claim = await store.outbox.claim("default", "me", clock.now(), 10)
    ((_, message),) = claim.streams[0].messages
    assert message.target == TARGET_PREFIX + "ops"
    assert '"no ping came"' in message.body
