"""Users, sessions, the link for the first admin, and how often a login may fail."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

import pytest

from noonbell.access import User
from noonbell.access.access_records import LOGIN_FAILURES, SESSION, USER
from noonbell.access.address_keys import counted_as
from noonbell.access.logins import FREE
from noonbell.access.passwords import Passwords
from noonbell.errors import AccessError, AccessInvalidError, AccessNotFoundError, LoginRefusedError
from noonbell.ports import AuditFilter, DocumentFilter
from tests.access.conftest import World
from tests.patience import PATIENCE_SECONDS

GOOD = "correct horse battery"


async def ann(world: World) -> User:
    return await world.access.create_admin("ann", GOOD)


async def fail(world: World, name: str = "ann", address: str = "10.0.0.1") -> LoginRefusedError:
    with pytest.raises(LoginRefusedError) as caught:
        await world.access.verify_password(name, "wrong", address)
    return caught.value


async def test_a_password_is_known_again_and_not_stored(world: World) -> None:
    await ann(world)
    assert (await world.access.verify_password("ann", GOOD, "10.0.0.1")).name == "ann"
    (document,) = await world.store.documents.find(DocumentFilter(USER, ["ann"]))
    assert GOOD not in document.body
    assert "$argon2id$" in document.body
    assert GOOD not in repr(await world.store.audit.page(AuditFilter(), 0, 100))


async def test_the_default_hash_is_argon2id_with_the_memory_that_is_recommended() -> None:
    hashed = await Passwords().hash(GOOD)
    kind, version, costs = hashed.split("$")[1:4]
    assert (kind, version) == ("argon2id", "v=19")
    assert int(costs.split(",")[0].removeprefix("m=")) >= 19 * 1024


async def test_without_the_hash_function_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "argon2", None)
    with pytest.raises(AccessError, match=r'install "noonbell\[server\]"'):
        await Passwords().hash(GOOD)
    with pytest.raises(AccessError, match=r'install "noonbell\[server\]"'):
        await Passwords().fits(None, GOOD)


async def test_wrong_names_and_wrong_passwords_are_told_alike(world: World) -> None:
    await ann(world)
    assert str(await fail(world, "ann")) == str(await fail(world, "nobody")) == str(await fail(world, "x" * 5000))


@pytest.mark.parametrize(("name", "password", "field"), [("Ann", GOOD, "name"), ("ann", "short", "password")])
async def test_what_no_admin_can_have(world: World, name: str, password: str, field: str) -> None:
    with pytest.raises(AccessInvalidError) as caught:
        await world.access.create_admin(name, password)
    assert caught.value.field == field
    assert password not in str(caught.value)


async def test_a_name_is_taken_once(world: World) -> None:
    await ann(world)
    with pytest.raises(AccessInvalidError, match="is taken"):
        await world.access.create_admin("ann", "another password")


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_after_some_failures_even_the_right_password_waits(world: World) -> None:
    await ann(world)
    for _ in range(FREE["account"]):
        assert (await fail(world)).retry_after_seconds is None
    with pytest.raises(LoginRefusedError) as caught:
        await world.access.verify_password("ann", GOOD, "10.0.0.99")
    assert caught.value.retry_after_seconds == 1
    await world.clock.jump(timedelta(seconds=1))
    assert (await world.access.verify_password("ann", GOOD, "10.0.0.99")).name == "ann"
    assert (await fail(world)).retry_after_seconds is None, "a success forgets the failures of the account"


async def test_the_pause_of_an_account_grows_and_stays_short(world: World) -> None:
    await ann(world)
    pauses = []
    for number in range(FREE["account"] + 8):
        await fail(world, address=f"10.0.{number}.1")
        try:
            await world.access.verify_password("ann", GOOD + "x", f"10.1.{number}.1")
        except LoginRefusedError as error:
            pauses.append(error.retry_after_seconds or 0)
        await world.clock.jump(timedelta(seconds=pauses[-1]))
    assert max(pauses) == 30
    assert [pause for pause in pauses if pause][:4] == [1, 2, 4, 8]


async def test_an_address_that_goes_on_waits_whatever_name_it_tries(world: World) -> None:
    await ann(world)
    for number in range(FREE["address"]):
        await fail(world, f"user{number}")
    assert (await fail(world, "somebody")).retry_after_seconds == 1
    with pytest.raises(LoginRefusedError):
        await world.access.verify_password("ann", GOOD, "10.0.0.1")
    assert (await world.access.verify_password("ann", GOOD, "10.0.0.2")).name == "ann"


async def test_a_clock_that_is_set_back_locks_nobody_out(world: World) -> None:
    await ann(world)
    assert (await world.access.verify_password("ann", GOOD, "10.0.0.1")).name == "ann"
    world.clock.step(-timedelta(hours=1))
    assert (await world.access.verify_password("ann", GOOD, "10.0.0.1")).name == "ann"
    for _ in range(FREE["account"]):
        await fail(world, address="10.0.0.2")
    world.clock.step(-timedelta(hours=1))
    assert (await fail(world, address="10.0.0.3")).retry_after_seconds is None
    assert (await fail(world, address="10.0.0.3")).retry_after_seconds == 2, "the failures still count"


async def test_a_clock_that_is_a_little_behind_shortens_no_pause(world: World) -> None:
    await ann(world)
    for _ in range(FREE["account"]):
        await fail(world)
    world.clock.step(-timedelta(seconds=5))
    assert (await fail(world)).retry_after_seconds == 6


async def test_failures_are_counted_one_by_one_when_they_come_together(world: World) -> None:
    await ann(world)
    await asyncio.gather(*(fail(world, "ann", "10.0.0.7") for _ in range(4)))
    await fail(world, "ann", "10.0.0.7")
    with pytest.raises(LoginRefusedError) as caught:
        await world.access.verify_password("ann", GOOD, "10.0.0.7")
    assert caught.value.retry_after_seconds == 1


async def test_many_guesses_at_once_are_not_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await ann(world)
    looked: list[str] = []
    release = asyncio.Event()

    async def fits(_: Passwords, hashed: str | None, password: str) -> bool:
        del hashed
        looked.append(password)
        await release.wait()
        return False

    monkeypatch.setattr(Passwords, "fits", fits)
    guesses = [
        asyncio.ensure_future(world.access.verify_password("ann", f"guess {number}", f"10.0.0.{number}"))
        for number in range(60)
    ]
    throttled, _ = await asyncio.wait(guesses, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    assert throttled
    assert all(isinstance(one.exception(), LoginRefusedError) for one in throttled)
    release.set()
    ended = await asyncio.gather(*guesses, return_exceptions=True)
    waits = [one.retry_after_seconds for one in ended if isinstance(one, LoginRefusedError)]
    assert len(looked) == FREE["account"]
    assert len(waits) == 60
    assert waits.count(None) == FREE["account"]


async def test_many_guesses_at_once_from_one_address_are_not_looked_at(world: World) -> None:
    ended = await asyncio.gather(*(fail(world, f"user{number}", "10.0.0.1") for number in range(50)))
    assert [one.retry_after_seconds for one in ended].count(None) == FREE["address"]


async def test_logins_that_succeed_cost_an_address_nothing(world: World) -> None:
    await ann(world)
    for _ in range(FREE["address"] - 1):
        await fail(world, "somebody")
        await world.clock.jump(timedelta(seconds=31))
    for _ in range(5):
        assert (await world.access.verify_password("ann", GOOD, "10.0.0.1")).name == "ann"
    assert (await fail(world, "another")).retry_after_seconds is None
    assert (await fail(world, "another")).retry_after_seconds == 1


async def test_the_addresses_of_one_network_count_as_one(world: World) -> None:
    for number in range(FREE["address"]):
        await fail(world, f"user{number}", f"2001:db8:1:2::{number + 1:x}")
    assert (await fail(world, "another", "2001:db8:1:2:ffff::9")).retry_after_seconds == 1
    assert (await fail(world, "another", "2001:db8:1:3::1")).retry_after_seconds is None


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
    ],
)
def test_how_an_address_is_counted(address: str, counted: str) -> None:
    assert counted_as(address) == counted


async def test_time_forgets_failures(world: World) -> None:
    await ann(world)
    for _ in range(FREE["account"] - 1):
        await fail(world)
    await world.clock.jump(timedelta(minutes=16))
    for _ in range(FREE["account"]):
        assert (await fail(world)).retry_after_seconds is None
    await world.clock.jump(timedelta(hours=2))
    assert await world.access.sweep() == 2
    assert await world.store.documents.find(DocumentFilter(LOGIN_FAILURES), "", 10) == []


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_a_session_lasts_half_a_day(world: World) -> None:
    session = await world.access.open_session(await ann(world), "10.0.0.1")
    found = await world.access.session(session.token)
    assert found is not None
    assert found[0] == session
    assert (found[1].actor, found[1].team, found[1].may("admin")) == ("user:ann", "default", True)
    assert session.token not in repr(world.store.data.documents)
    await world.clock.jump(timedelta(hours=12))
    assert await world.access.session(session.token) is None
    assert await world.access.sweep() == 1
    assert await world.store.documents.find(DocumentFilter(SESSION), "", 10) == []


async def test_a_session_ends_with_logout_with_the_user_and_with_a_new_password(world: World) -> None:
    user = await ann(world)
    one, two = [await world.access.open_session(user, "10.0.0.1") for _ in range(2)]
    await world.access.close_session(one.token)
    assert await world.access.session(one.token) is None
    assert await world.access.session(two.token) is not None
    await world.access.set_password("ann", "a new password")
    assert await world.access.session(two.token) is None
    three = await world.access.open_session(user, "10.0.0.1")
    await world.access.delete_user("ann")
    assert await world.access.session(three.token) is None
    assert await world.access.list_users() == []
    with pytest.raises(AccessNotFoundError):
        await world.access.set_password("ann", GOOD)
    with pytest.raises(AccessNotFoundError):
        await world.access.delete_user("ann")


async def test_a_token_that_nobody_has(world: World) -> None:
    assert await world.access.session("nothing") is None


# --- the first admin --------------------------------------------------------------------------------------------------


async def test_the_link_makes_one_admin_once(world: World) -> None:
    token = await world.access.new_first_admin_token()
    assert token is not None
    assert token not in repr(world.store.data.documents)
    assert not await world.access.first_admin_token_fits(token + "x")
    assert await world.access.first_admin_token_fits(token)
    await world.access.create_first_admin(token, "ann", GOOD)
    assert not await world.access.first_admin_token_fits(token)
    with pytest.raises(LoginRefusedError):
        await world.access.create_first_admin(token, "bob", GOOD)
    assert await world.access.new_first_admin_token() is None
    assert [user.name for user in await world.access.list_users()] == ["ann"]


async def test_a_slip_does_not_use_the_link_up(world: World) -> None:
    token = await world.access.new_first_admin_token()
    assert token is not None
    for name, password in (("No Name", GOOD), ("ann", "short")):
        with pytest.raises(AccessInvalidError):
            await world.access.create_first_admin(token, name, password)
    assert (await world.access.create_first_admin(token, "ann", GOOD)).name == "ann"


async def test_of_two_who_use_the_link_at_once_one_is_the_admin(world: World) -> None:
    token = await world.access.new_first_admin_token()
    assert token is not None
    names = ("ann", "bob", "cem")
    ended = await asyncio.gather(
        *(world.access.create_first_admin(token, name, GOOD) for name in names), return_exceptions=True
    )
    assert sum(isinstance(one, User) for one in ended) == 1
    assert sum(isinstance(one, LoginRefusedError) for one in ended) == 2
    assert len(await world.access.list_users()) == 1


async def test_a_newer_link_and_time_end_a_link(world: World) -> None:
    old = await world.access.new_first_admin_token()
    new = await world.access.new_first_admin_token()
    assert old is not None
    assert new is not None
    assert not await world.access.first_admin_token_fits(old)
    await world.clock.jump(timedelta(hours=24))
    assert not await world.access.first_admin_token_fits(new)
    with pytest.raises(LoginRefusedError):
        await world.access.create_first_admin(new, "ann", GOOD)
