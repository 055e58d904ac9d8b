"""Key files: private, never overwritten, never shown."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import stat
from pathlib import Path

import pytest

from noonbell.actions.secrets.keys import (
    KeyRing,
    add_key,
    create_key_file,
    keys_from_environment,
    parse_keys,
    read_keys,
)
from noonbell.errors import MasterKeyError, MasterKeyMissingError


def line(version: int, fill: int) -> str:
    return f"{version}:{base64.urlsafe_b64encode(bytes([fill]) * 32).decode().rstrip('=')}"


def test_a_new_file_is_private_and_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    before = os.umask(0)
    try:
        ring = create_key_file(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = read_keys(path)
    assert (again.versions, again.key(1)) == ((1,), ring.key(1))
    assert again.key(2) is None


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("mine")
    with pytest.raises(MasterKeyError, match="not overwritten"):
        create_key_file(path)
    assert path.read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    with pytest.raises(MasterKeyError, match="not overwritten"):
        create_key_file(link)
    with pytest.raises(MasterKeyError, match="cannot be written: No such file"):
        create_key_file(tmp_path / "no folder" / "keys")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601, 0o620, 0o644, 0o666])
def test_a_file_that_others_may_open_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys"
    create_key_file(path)
    path.chmod(mode)
    with pytest.raises(MasterKeyError, match=f"{mode:04o}.*chmod 600"):
        read_keys(path)
    with pytest.raises(MasterKeyError, match="chmod 600"):
        add_key(path)
    path.chmod(0o400)
    assert read_keys(path).versions == (1,)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    create_key_file(path)
    if os.geteuid() == 0:
        os.chown(path, 4321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4321)
    with pytest.raises(MasterKeyError, match="belongs to user"):
        read_keys(path)


def test_what_is_no_key_file(tmp_path: Path) -> None:
    with pytest.raises(MasterKeyMissingError, match="noonbell keys new"):
        read_keys(tmp_path / "none")
    with pytest.raises(MasterKeyError, match="not a regular file"):
        read_keys(tmp_path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    with pytest.raises(MasterKeyError, match="not a regular file"):
        read_keys(fifo)
    for data, reason in (
        (b"\xff" * 9, "ASCII"),
        (b"#" * 70_000, "longer"),
        (b"# nothing\n", "no key"),
        (b"", "no key"),
    ):
        path = tmp_path / "bad"
        path.write_bytes(data)
        path.chmod(0o600)
        with pytest.raises(MasterKeyError, match=reason):
            read_keys(path)


def test_a_key_is_added_on_top(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    first = create_key_file(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    second = add_key(link)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = read_keys(path)
    assert again.versions == (2, 1)
    assert again.newest == 2
    assert again.key(1) == first.key(1)
    assert again.key(2) == second.key(2) != first.key(1)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["keys", "link"]


def test_two_who_add_at_once_do_not_lose_a_key(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    create_key_file(path)
    (tmp_path / "keys.new").write_text("of another")
    with pytest.raises(MasterKeyError, match=r"keys\.new exists"):
        add_key(path)
    assert (tmp_path / "keys.new").read_text() == "of another"
    assert read_keys(path).versions == (1,)


def test_the_variable() -> None:
    assert keys_from_environment({}) is None
    text = f"{line(3, 3)}, {line(1, 1)}"
    ring = keys_from_environment({"NOONBELL_MASTER_KEYS": text})
    assert ring is not None
    assert (ring.versions, ring.key(3), ring.key(1)) == ((3, 1), b"\3" * 32, b"\1" * 32)
    for empty in ("", " \n"):
        with pytest.raises(MasterKeyMissingError, match="variable NOONBELL_MASTER_KEYS"):
            keys_from_environment({"NOONBELL_MASTER_KEYS": empty})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{line(1, 1)}\n{line(2, 2)}", "line 2: version 2 must be below 1, newest first"),
        (f"{line(2, 1)}\n{line(2, 2)}", "must be below 2"),
        (f"{line(2, 1)}\n{line(1, 1)}", "same key"),
        (line(1, 1)[:-1], "line 1 is not VERSION:KEY"),
        (line(0, 1), "line 1 is not VERSION:KEY"),
        ("\n\n" + line(1, 1) + "x", "line 3 is not VERSION:KEY"),
        (line(9_999_999_999, 1), "version 9999999999 must be"),
        (line(1, 1)[:-1] + "F", "cut or mistyped"),
        ("1:" + "secret" * 5, "line 1 is not VERSION:KEY"),
    ],
)
def test_bad_text_is_told_by_line_and_not_shown(text: str, reason: str) -> None:
    with pytest.raises(MasterKeyError, match=reason) as caught:
        parse_keys(text, "somewhere")
    assert str(caught.value).startswith("Master keys in somewhere: ")
    for entry in text.split():
        assert entry.partition(":")[2] not in str(caught.value)


def test_a_ring_does_not_show_or_hand_on_its_keys() -> None:
    ring = KeyRing({1: b"k" * 32})
    assert repr(ring) == str(ring) == "KeyRing(versions=[1])"
    for carry in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled or copied"):
            carry(ring)
    for bad in ({}, {1: b"short"}, {0: b"k" * 32}):
        with pytest.raises(MasterKeyError):
            KeyRing(bad)
