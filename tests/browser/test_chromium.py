"""Where the browser comes from, and that there is no way to go without it."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.browser import chromium


def test_without_a_browser_there_is_an_error_not_a_skip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(chromium.NoBrowserError, match="apt-get could not fetch it"):
        chromium.find_chromium()


def test_what_fetching_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path / "apt-get", "echo 'no network' >&2; exit 100")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(chromium, "PACKAGE", "chromium-that-is-nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(chromium.NoBrowserError, match="no network"):
        chromium.find_chromium()


def test_whoever_is_not_root_unpacks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With programs that stand in for Debian's: which packages are fetched, and where the browser is found then."""
    _program(
        tmp_path / "apt-get",
        f'echo "$@" >> {tmp_path}/asked\n'
        'case "$*" in\n'
        '  *--simulate*) echo "Inst libnss3 (3.87 Debian)"; echo "Inst chromium (150.0 Debian)";;\n'
        "  *download*) touch chromium_150.0.deb libnss3_3.87.deb;;\n"
        "esac",
    )
    _program(
        tmp_path / "dpkg-deb",
        'mkdir -p "$3/usr/lib/chromium" "$3/usr/lib/x86_64-linux-gnu"; touch "$3/usr/lib/chromium/chromium"',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = chromium.find_chromium()
    assert found.path == tmp_path / "cache/noonbell/chromium/root/usr/lib/chromium/chromium"
    assert found.environment["LD_LIBRARY_PATH"].endswith("root/usr/lib/x86_64-linux-gnu")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert "download libnss3=3.87 chromium=150.0" in asked[-1]
    chromium.find_chromium()
    assert (tmp_path / "asked").read_text().splitlines() == asked  # the second time it is there


def _program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
