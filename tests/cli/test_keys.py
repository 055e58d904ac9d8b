"""`noonbell keys` makes key files and shows no key."""

from __future__ import annotations

import stat
from pathlib import Path

from click.testing import CliRunner, Result

from noonbell.actions.secrets.keys import read_keys
from noonbell.cli.program import program


def keys(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["keys", *arguments])


def test_new_and_add(tmp_path: Path) -> None:
    path = tmp_path / "master.keys"
    told = keys("new", str(path))
    assert told.exit_code == 0
    assert f"Master key 1 is in {path}" in told.output
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    more = keys("add", str(path))
    assert more.exit_code == 0
    assert f"Master key 2 is in {path}, above 1 older" in more.output
    assert read_keys(path).versions == (2, 1)
    entries = [line.partition(":")[2] for line in path.read_text().splitlines() if not line.startswith("#")]
    assert len(entries) == 2
    assert not [entry for entry in entries if entry in told.output + more.output]


def test_an_existing_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "master.keys"
    keys("new", str(path))
    before = path.read_bytes()
    again = keys("new", str(path))
    assert again.exit_code == 2
    assert "exists, and is not overwritten" in again.output
    assert path.read_bytes() == before


def test_bad_files(tmp_path: Path) -> None:
    missing = keys("add", str(tmp_path / "none"))
    assert missing.exit_code == 2
    assert "noonbell keys new FILE" in missing.output
    path = tmp_path / "master.keys"
    keys("new", str(path))
    path.chmod(0o644)
    wide = keys("add", str(path))
    assert wide.exit_code == 2
    assert "chmod 600" in wide.output
    assert keys().exit_code == 2
