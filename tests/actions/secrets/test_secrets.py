"""The secrets of a store in use: put, resolved, masked, moved to a new master key; on every store."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

import noonbell
from noonbell.actions.secrets import DEFAULT_TEAM, KeyRing, Secrets
from noonbell.actions.secrets.keys import new_ring
from noonbell.actions.secrets.logs import OWN_LOGGERS
from noonbell.core.records import DocumentWrite
from noonbell.errors import (
    MasterKeyMissingError,
    ScheduleInvalidError,
    SecretInvalidError,
    SecretUnreadableError,
    SigningKeyError,
)
from noonbell.ports import AuditFilter, DocumentFilter, Ledger
from noonbell.schedules import Schedules
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock

RING = new_ring()
T = DEFAULT_TEAM


def clock() -> ManualClock:
    return ManualClock(datetime(2026, 3, 4, 12, tzinfo=UTC))


def secrets_of(store: Ledger, ring: KeyRing | None = RING, ticking: ManualClock | None = None) -> Secrets:
    return Secrets(store, ring, ticking or clock(), "ann")


async def told(store: Ledger) -> list[tuple[str, str, dict[str, object]]]:
    events = await store.audit.page(AuditFilter(), 0, 100)
    return [(one.event, one.actor, msgspec.json.decode(one.detail)) for _, one in events]


async def test_values_go_in_and_only_names_come_out(store: Ledger) -> None:
    secrets = secrets_of(store)
    first = await secrets.put(T, "TOKEN", "value one")
    second = await secrets.put(T, "TOKEN", "value two")
    await secrets.put("other", "TOKEN", "value other")
    assert (first.version, second.version) == (1, 2)
    assert [(facts.name, facts.version, facts.key_version) for facts in await secrets.list(T)] == [("TOKEN", 2, 1)]
    assert await secrets.resolve(T, ["TOKEN", "NONE", "no name"]) == {"TOKEN": "value two"}
    assert await secrets.delete(T, "TOKEN")
    assert not await secrets.delete(T, "TOKEN")
    assert await secrets.resolve(T, ["TOKEN"]) == {}
    assert await secrets.resolve("other", ["TOKEN"]) == {"TOKEN": "value other"}
    facts = {"team": T, "name": "TOKEN"}
    assert await told(store) == [
        ("secret.created", "ann", {**facts, "version": 1}),
        ("secret.replaced", "ann", {**facts, "version": 2}),
        ("secret.created", "ann", {"team": "other", "name": "TOKEN", "version": 1}),
        ("secret.deleted", "ann", facts),
    ]


async def test_nothing_is_stored_or_read_without_a_master_key(store: Ledger) -> None:
    await secrets_of(store).put(T, "TOKEN", "value one")
    bare = secrets_of(store, None)
    assert not bare.usable
    for refused in (
        bare.put(T, "OTHER", "value two"),
        bare.resolve(T, ["TOKEN"]),
        bare.rotate(),
        bare.signing_keys("abc"),
        bare.rotate_signing_keys("abc"),
    ):
        with pytest.raises(MasterKeyMissingError, match="noonbell keys new FILE"):
            await refused
    assert await bare.resolve(T, []) == {}
    assert [facts.name for facts in await bare.list(T)] == ["TOKEN"]
    assert bare.mask("value one") == "value one"
    assert not bare.masker(T)


async def test_a_change_counts_here_at_once_and_elsewhere_within_a_second(store: Ledger) -> None:
    ticking = clock()
    here, there = secrets_of(store, ticking=ticking), secrets_of(store, ticking=ticking)
    await here.put(T, "TOKEN", "value one")
    assert await there.resolve(T, ["TOKEN"]) == {"TOKEN": "value one"}
    await here.put(T, "TOKEN", "value two")
    await here.put(T, "NEW", "value new")
    assert await here.resolve(T, ["TOKEN"]) == {"TOKEN": "value two"}
    assert await there.resolve(T, ["TOKEN"]) == {"TOKEN": "value one"}
    await ticking.advance(timedelta(seconds=1.1))
    assert await there.resolve(T, ["TOKEN"]) == {"TOKEN": "value two"}
    await here.put(T, "LATE", "value late")
    assert await there.resolve(T, ["LATE"]) == {"LATE": "value late"}, "an unknown name is looked up at once"


async def test_a_secret_that_was_made_anew_has_its_new_value(store: Ledger) -> None:
    """Its versions are those of the old one, so nothing may go by them alone."""
    ticking = clock()
    here, there = secrets_of(store, ticking=ticking), secrets_of(store, ticking=ticking)
    await here.put(T, "TOKEN", "value one")
    assert await there.resolve(T, ["TOKEN"]) == {"TOKEN": "value one"}
    await here.delete(T, "TOKEN")
    await here.put(T, "TOKEN", "value two")
    await ticking.advance(timedelta(seconds=1.1))
    assert await there.resolve(T, ["TOKEN"]) == {"TOKEN": "value two"}


async def test_masking_knows_the_whole_team_and_what_was_replaced(store: Ledger) -> None:
    secrets = secrets_of(store)
    await secrets.put(T, "TOKEN", "value one")
    await secrets.put(T, "OTHER", "value other")
    await secrets.put("team2", "THIRD", "value third")
    assert secrets.mask("value one") == "value one", "nothing is known before it is used"
    await secrets.resolve(T, [])
    shown = "value one, value other, value third"
    assert secrets.masker(T).text(shown) == "***, ***, value third"
    same = secrets.masker(T)
    await secrets.resolve(T, ["TOKEN"])
    assert secrets.masker(T) is same, "it is made once for a set of values"
    await secrets.put(T, "TOKEN", "value two")
    await secrets.delete(T, "OTHER")
    assert secrets.masker(T).text(f"{shown}, value two") == "***, ***, value third, ***"
    await secrets.resolve("team2", [])
    assert secrets.mask(shown) == "***, ***, ***"


async def test_finds_of_several_teams_that_overlap_hide_each_other_whole(store: Ledger) -> None:
    secrets = secrets_of(store)
    await secrets.put(T, "SHORT", "abcdefgh")
    await secrets.put("team2", "LONG", "xyz-abcdefgh-xyz")
    await secrets.resolve(T, [])
    await secrets.resolve("team2", [])
    assert secrets.mask("is xyz-abcdefgh-xyz here, abcdefgh there") == "is *** here, *** there"


async def test_a_damaged_record_hides_no_other(store: Ledger) -> None:
    secrets = secrets_of(store)
    await secrets.put(T, "GOOD", "value good")
    for name, body in (("BAD", "{}"), ("WORSE", "no json")):
        await store.documents.write([DocumentWrite("secret", f"{T}/{name}", T, body, 0)], 5)
    assert [facts.name for facts in await secrets.list(T)] == ["BAD", "GOOD", "WORSE"]
    assert await secrets.resolve(T, ["GOOD"]) == {"GOOD": "value good"}
    for _ in range(2):
        with pytest.raises(SecretUnreadableError, match='"BAD" of team "default"'):
            await secrets.resolve(T, ["GOOD", "BAD"])
    await secrets.put(T, "BAD", "value mended")
    assert await secrets.resolve(T, ["BAD"]) == {"BAD": "value mended"}


async def test_a_record_moved_to_another_name_or_team_does_not_open(store: Ledger) -> None:
    secrets = secrets_of(store)
    await secrets.put(T, "TOKEN", "value one")
    (document,) = await store.documents.find(DocumentFilter("secret", [f"{T}/TOKEN"]))
    await store.documents.write(
        [
            DocumentWrite("secret", f"{T}/COPY", T, document.body),
            DocumentWrite("secret", "team2/TOKEN", "team2", document.body),
        ],
        5,
    )
    for team, name in ((T, "COPY"), ("team2", "TOKEN")):
        with pytest.raises(SecretUnreadableError):
            await secrets.resolve(team, [name])


async def test_writers_at_once_lose_nothing(store: Ledger) -> None:
    found = await asyncio.gather(*(secrets_of(store).put(T, "TOKEN", f"value {number}") for number in range(6)))
    assert sorted(facts.version for facts in found) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(SecretInvalidError, match="at least 6"):
        await secrets_of(store).put(T, "TOKEN", "short")


async def test_rotation_while_others_write(store: Ledger) -> None:
    old = secrets_of(store)
    for number in range(30):
        await old.put(f"team{number % 3}", f"S{number}", f"value {number}")
    keys = await old.signing_keys("abc")
    ring = RING.with_new_key()
    new, begun, stop = secrets_of(store, ring), asyncio.Event(), asyncio.Event()

    async def write() -> None:
        rounds = 0
        while not stop.is_set():
            await new.put("team0", f"S{rounds % 10 * 3}", f"newer {rounds}")
            rounds += 1
            begun.set()
            await asyncio.sleep(0)  # the store in memory gives way to nobody

    writing = asyncio.create_task(write())
    await begun.wait()
    progress: list[int] = []
    done = await new.rotate(page=7, progress=progress.append)
    stop.set()
    await writing
    assert done.unreadable == []
    assert progress == sorted(progress)
    assert progress[-1] == done.rewrapped
    newest = ring.key(2)
    assert newest is not None
    alone = secrets_of(store, KeyRing({2: newest}))
    for number in range(30):
        name = f"S{number}"
        (value,) = (await alone.resolve(f"team{number % 3}", [name])).values()
        assert value == f"value {number}" or (number % 3 == 0 and value.startswith("newer "))
    assert await alone.signing_keys("abc") == keys
    assert (await new.rotate()).rewrapped == 0, "nothing is left to do"
    rotations = [detail for event, _, detail in await told(store) if event == "secrets.rotated"]
    assert rotations == [{"key_version": 2, "rewrapped": done.rewrapped, "unreadable": 0}]


async def test_a_rotation_that_was_stopped_goes_on(store: Ledger) -> None:
    old = secrets_of(store)
    for number in range(20):
        await old.put(T, f"S{number:02}", f"value {number}")
    new = secrets_of(store, RING.with_new_key())

    def stop_at_ten(done: int) -> None:
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await new.rotate(page=5, progress=stop_at_ten)
    assert [facts.key_version for facts in await new.list(T)] == [2] * 10 + [1] * 10
    assert (await new.rotate(page=5)).rewrapped == 10
    assert {facts.key_version for facts in await new.list(T)} == {2}
    assert {facts.version for facts in await new.list(T)} == {1}, "a new wrapping is no new value"


async def test_signing_keys_are_made_once_and_replaced_with_an_overlap(store: Ledger) -> None:
    ticking = clock()
    here, there = secrets_of(store, ticking=ticking), secrets_of(store, ticking=ticking)
    made = await asyncio.gather(*(one.signing_keys("abc") for one in (here, there, here)))
    assert made[0] == made[1] == made[2]
    (first,) = made[0]
    assert first.key.startswith("whsec_")
    assert first.key not in repr(made)
    assert (await here.signing_keys("other"))[0].key != first.key
    second, ending = await here.rotate_signing_keys("abc", overlap=timedelta(hours=1))
    assert ending.key == first.key
    await ticking.advance(timedelta(minutes=1))
    assert [key.key for key in await there.signing_keys("abc")] == [second.key, first.key]
    await ticking.advance(timedelta(hours=1))
    assert [key.key for key in await there.signing_keys("abc")] == [second.key]
    (third,) = await here.rotate_signing_keys("abc", overlap=timedelta(0))
    assert third.key not in {first.key, second.key}
    assert await here.drop_signing_keys("abc")
    assert not await here.drop_signing_keys("abc")
    (document,) = await store.documents.find(DocumentFilter("signing_key", ["other"]))
    assert "whsec" not in document.body


async def test_signing_keys_of_another_team_are_neither_shown_nor_changed_nor_dropped(store: Ledger) -> None:
    secrets = secrets_of(store)
    mine = await secrets.signing_keys("abc", "mine")
    with pytest.raises(SigningKeyError, match="another team has keys"):
        await secrets.signing_keys("abc", "other")
    assert await secrets.made_signing_keys("abc", "other") == []
    with pytest.raises(SigningKeyError, match="another team has keys"):
        await secrets.rotate_signing_keys("abc", "other")
    assert not await secrets.drop_signing_keys("abc", "other")
    assert await secrets_of(store).signing_keys("abc", "mine") == mine
    assert await secrets.drop_signing_keys("abc", "mine")
    assert await secrets.signing_keys("abc", "other") != mine


async def test_a_signing_key_does_not_open_as_a_secret(store: Ledger) -> None:
    secrets = secrets_of(store)
    await secrets.signing_keys("TOKEN")
    (document,) = await store.documents.find(DocumentFilter("signing_key", ["TOKEN"]))
    await store.documents.write([DocumentWrite("secret", f"{T}/TOKEN", T, document.body)], 5)
    with pytest.raises(SecretUnreadableError):
        await secrets.resolve(T, ["TOKEN"])


async def test_missing_names(store: Ledger) -> None:
    await secrets_of(store).put(T, "THERE", "value one")
    tree = {"url": "https://a/${secrets.A}${secrets.THERE}", "headers": {"x-${secrets.B}": ["$${secrets.C} ${x}"]}}
    assert await secrets_of(store, None).missing(T, tree) == ["A", "B"]
    assert await secrets_of(store, None).missing(T, {"n": 5}) == []


def test_every_logger_of_the_package_is_guarded() -> None:
    source = Path(noonbell.__file__).parent
    named = {
        name
        for file in source.rglob("*.py")
        for name in re.findall(r"""getLogger\(["'](noonbell[^"']*)["']""", file.read_text())
    }
    assert named <= set(OWN_LOGGERS)
    assert "noonbell.engine" in named


async def test_a_schedule_that_names_a_missing_secret_is_created_with_a_warning(
    store: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    schedules = Schedules(store, secrets=RING)
    await schedules.secrets.put(T, "THERE", "value there")
    action = {"kind": "command", "argv": ["x"], "env": {"A": "${secrets.THERE}", "B": "${secrets.MISSING}"}}
    allowed = Schedules(store, secrets=schedules.secrets, commands=True)
    with caplog.at_level(logging.WARNING):
        made = await allowed.create(name="a", type="cron", spec="* * * * *", action=action)
        (told,) = [record.getMessage() for record in caplog.records]
        assert told.startswith("Secret not found: MISSING; a schedule refers to it")
        caplog.clear()
        await allowed.update(made.schedule_id, action={**action, "env": {"A": "${secrets.THERE}"}})
        assert caplog.records == []
        await allowed.create_many([{"name": "b", "type": "cron", "spec": "* * * * *", "action": action}])
        assert len(caplog.records) == 1


async def test_a_message_must_not_hold_a_secret(store: Ledger) -> None:
    schedules = Schedules(store, secrets=RING)
    for payload in ({"text": "x ${secrets.TOKEN}"}, {"a": [{"${secrets.TOKEN}": 1}]}):
        with pytest.raises(ScheduleInvalidError, match="refers to a secret, which a message must not hold"):
            await schedules.create(
                name="a", type="cron", spec="* * * * *", payload=payload, action={"kind": "message", "to": "inbox"}
            )


async def test_log_lines_of_the_package_are_masked(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    await store.open()
    secrets = secrets_of(store)
    await secrets.put(T, "TOKEN", "zebra-crossing-77")
    await secrets.resolve(T, [])
    engine, strange = logging.getLogger("noonbell.engine"), logging.getLogger("somebody.else")
    kept = ValueError("nothing to hide")
    with caplog.at_level(logging.DEBUG):
        engine.debug("sent %s", "zebra-crossing-77", extra={"url": "/?t=zebra%2Dcrossing%2D77"})
        engine.error("failed", exc_info=ValueError("token zebra-crossing-77"))
        engine.error("failed", exc_info=kept)
        strange.error("zebra-crossing-77 is not ours to change")
    first, second, third, other = caplog.records
    assert first.getMessage() == "sent ***"
    assert first.__dict__["url"] == "/?t=***"
    assert "zebra" not in str(second.exc_text)
    assert "ValueError: token ***" in str(second.exc_text)
    assert second.exc_info is None
    assert third.exc_info is not None
    assert third.exc_info[1] is kept, "what shows no secret stays as it is"
    assert "zebra" in other.getMessage()
    del secrets
    gc.collect()
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        engine.debug("zebra-crossing-77")
    assert caplog.records[0].getMessage() == "zebra-crossing-77", "nobody knows it as a secret any more"
