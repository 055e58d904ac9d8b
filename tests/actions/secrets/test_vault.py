"""What was sealed opens, as itself and unchanged, or not at all."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.actions.secrets.keys import KeyRing, new_ring
from noonbell.actions.secrets.secret_records import SealedSecret
from noonbell.actions.secrets.vault import Vault
from noonbell.errors import SecretInvalidError, SecretUnreadableError

RING = new_ring()
VAULT = Vault(RING)
VALUE = "correct horse"

values = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=300).filter(lambda s: len(set(s)) > 2)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)


def sealed(value: str = VALUE, team: str = "team", name: str = "NAME", version: int = 1) -> SealedSecret:
    return VAULT.seal(value, team=team, name=name, version=version, now=5)


@given(values, names, names, st.integers(1, 10**9))
@settings(deadline=None)
def test_round_trip(value: str, team: str, name: str, version: int) -> None:
    record = VAULT.seal(value, team=team, name=name, version=version, now=7, created_at=3)
    assert VAULT.open(record) == value
    assert (record.team, record.name, record.version, record.key_version) == (team, name, version, 1)
    assert (record.created_at, record.updated_at) == (3, 7)
    # and through whatever stores it
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=SealedSecret)
    assert VAULT.open(stored) == value


def test_every_byte_counts() -> None:
    record = sealed()
    for field in ("wrapped_key", "nonce", "body"):
        whole: bytes = getattr(record, field)
        for at in range(len(whole)):
            for bit in (0x01, 0x80):
                changed = whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :]
                with pytest.raises(SecretUnreadableError):
                    VAULT.open(msgspec.structs.replace(record, **{field: changed}))
        for cut in range(len(whole)):
            with pytest.raises(SecretUnreadableError):
                VAULT.open(msgspec.structs.replace(record, **{field: whole[:cut]}))
        with pytest.raises(SecretUnreadableError):
            VAULT.open(msgspec.structs.replace(record, **{field: whole + b"\0"}))


@pytest.mark.parametrize(
    "change",
    [
        {"team": "team2"},
        {"name": "OTHER"},
        {"version": 2},
        {"team": "tea", "name": "mNAME"},
        {"team": "\ud800"},
        {"version": -1},
    ],
)
def test_a_record_opens_only_as_itself(change: dict[str, str | int]) -> None:
    with pytest.raises(SecretUnreadableError):
        VAULT.open(msgspec.structs.replace(sealed(), **change))


def test_parts_of_records_cannot_be_swapped() -> None:
    other_ring = RING.with_new_key()
    pairs = [
        (sealed(), sealed("another value", name="OTHER")),
        (sealed(), sealed("another value", version=2)),
        (sealed(), sealed("another value")),  # the same identity, sealed twice
        (sealed(), Vault(other_ring).seal(VALUE, team="team", name="NAME", version=1, now=5)),
    ]
    vault = Vault(other_ring)
    for one, two in pairs:
        for fields in (["body"], ["nonce", "body"], ["wrapped_key"], ["wrapped_key", "key_version"], ["key_version"]):
            mixed = msgspec.structs.replace(one, **{field: getattr(two, field) for field in fields})
            if mixed != one:
                with pytest.raises(SecretUnreadableError):
                    vault.open(mixed)


def test_rewrapping_leaves_the_body_alone() -> None:
    record = sealed()
    ring = RING.with_new_key()
    wrapped = Vault(ring).rewrap(record)
    assert (wrapped.key_version, wrapped.nonce, wrapped.body) == (2, record.nonce, record.body)
    assert wrapped.wrapped_key != record.wrapped_key
    assert wrapped.updated_at == record.updated_at
    # the old key is needed no longer
    newest = ring.key(2)
    assert newest is not None
    assert Vault(KeyRing({2: newest})).open(wrapped) == VALUE
    assert Vault(ring).rewrap(wrapped) is wrapped
    with pytest.raises(SecretUnreadableError, match="version 2, and the ring has only 1"):
        VAULT.open(wrapped)


def test_rewrapping_notices_a_changed_record_and_another_key_of_the_same_version() -> None:
    record = sealed()
    with pytest.raises(SecretUnreadableError):
        Vault(RING.with_new_key()).rewrap(msgspec.structs.replace(record, name="OTHER"))
    with pytest.raises(SecretUnreadableError, match="another master key"):
        Vault(new_ring()).open(record)


def test_a_record_tells_nothing_of_its_value() -> None:
    records = [sealed("abcdef"), sealed("abcdef"), sealed("x" * 10 + "yz" * 20)]
    assert len({len(record.body) for record in records}) == 1
    assert len({record.body for record in records}) == 3
    assert len({record.wrapped_key for record in records}) == 3
    assert all(b"abcdef" not in msgspec.msgpack.encode(record) for record in records)


@pytest.mark.parametrize(
    ("value", "team", "name", "version", "field"),
    [
        ("short", "t", "N", 1, "value"),
        ("abababab", "t", "N", 1, "value"),
        (VALUE, "", "N", 1, "team"),
        (VALUE, "a\nb", "N", 1, "team"),
        (VALUE, "t", "", 1, "name"),
        (VALUE, "t", "1A", 1, "name"),
        (VALUE, "t", "a-b", 1, "name"),
        (VALUE, "t", "N" * 65, 1, "name"),
        (VALUE, "t", "N", 0, "version"),
    ],
)
def test_what_cannot_be_sealed(value: str, team: str, name: str, version: int, field: str) -> None:
    with pytest.raises(SecretInvalidError) as caught:
        VAULT.seal(value, team=team, name=name, version=version, now=5)
    assert caught.value.field == field
    assert VALUE not in str(caught.value)


def test_errors_of_opening_hold_nothing_of_the_cipher() -> None:
    record = sealed()
    with pytest.raises(SecretUnreadableError) as caught:
        VAULT.open(msgspec.structs.replace(record, body=record.body[:-1]))
    assert caught.value.__suppress_context__
    assert 'secret "NAME" of team "team"' in str(caught.value)
    assert repr(VAULT) == "Vault(KeyRing(versions=[1]))"
