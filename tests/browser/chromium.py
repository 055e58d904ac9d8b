"""Debian's Chromium for the tests: the one that is installed, or one that is fetched here and now.

Root installs the package. Anybody else has it downloaded with the libraries that the system lacks, and unpacked into a
folder of his own, from where it runs. Whatever goes wrong is an error: without a browser the tests fail.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

PACKAGE: Final = "chromium"
_FETCH_SECONDS: Final = 900
# The system's fonts, and those that were unpacked.
_FONTS: Final = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir>
  <dir>{root}/usr/share/fonts</dir>
  <cachedir>{root}/fontconfig</cachedir>
</fontconfig>
"""


class NoBrowserError(Exception):
    """There is no Chromium, and it could not be fetched."""


class Chromium(NamedTuple):
    """The program, and what has to be added to the environment that it runs in."""

    path: Path
    environment: dict[str, str]


def find_chromium() -> Chromium:
    """The browser; it is installed or unpacked where there is none. Processes that ask at once wait for each other."""
    found = shutil.which(PACKAGE)
    if found is not None:
        return Chromium(Path(found), {})
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.geteuid() == 0:
            return _installed()
        unpacked = folder / "root"
        if not (folder / "complete").exists():
            unpack(folder)
            (folder / "complete").touch()
        return within(unpacked)


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "noonbell" / "chromium"


def _installed() -> Chromium:
    found = shutil.which(PACKAGE)  # by whoever had the lock before
    if found is None:
        _run(["apt-get", "update", "-q"])
        _run(["apt-get", "install", "-q", "-y", "--no-install-recommends", PACKAGE], DEBIAN_FRONTEND="noninteractive")
        found = shutil.which(PACKAGE)
    if found is None:
        raise NoBrowserError(f"The package {PACKAGE} was installed, and there is no program of that name")
    return Chromium(Path(found), {})


def unpack(folder: Path, status: Path = Path("/var/lib/dpkg/status")) -> None:
    """Download the package and what it needs beyond `status`, the list of what is installed, and unpack it all."""
    lists, archives, root = folder / "lists", folder / "archives", folder / "root"
    for one in (lists / "partial", archives / "partial", root):
        one.mkdir(parents=True, exist_ok=True)
    options = [
        "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={folder}", "-o", f"Dir::State::status={status}",
        "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=",
    ]  # fmt: skip
    _run(["apt-get", *options, "update", "-q"])
    planned = _run(["apt-get", *options, "install", "--simulate", "--no-install-recommends", PACKAGE])
    wanted = re.findall(r"^Inst (\S+) \((\S+)", planned, re.MULTILINE)
    if not wanted:
        raise NoBrowserError(f"apt-get would install nothing for {PACKAGE}; it said: {planned[-400:]}")
    _run(["apt-get", *options, "download", *(f"{name}={version}" for name, version in wanted)], folder=archives)
    for archive in sorted(archives.glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(archive), str(root)])


def within(root: Path) -> Chromium:
    """A Chromium that was unpacked below `root`."""
    program = root / "usr/lib/chromium/chromium"
    if not program.exists():
        raise NoBrowserError(f"The package {PACKAGE} was unpacked, and holds no {program.relative_to(root)}")
    fonts = root / "fonts.conf"
    fonts.write_text(_FONTS.format(root=root))
    places = [str(found) for found in (root / "usr/lib").glob("*-linux-gnu*")]
    places += [str(found) for found in (root / "lib").glob("*-linux-gnu*")]
    return Chromium(program, {"LD_LIBRARY_PATH": ":".join(places), "FONTCONFIG_FILE": str(fonts)})


def _run(command: list[str], folder: Path | None = None, **environment: str) -> str:
    """What a command prints; what it prints last is the message where it fails."""
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=_FETCH_SECONDS, cwd=folder,
            env={**os.environ, "LC_ALL": "C", **environment},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoBrowserError(f"There is no {PACKAGE}, and {command[0]} could not fetch it: {error}") from error
    if done.returncode != 0:
        raise NoBrowserError(
            f"There is no {PACKAGE}, and fetching it failed: {' '.join(command)}: {(done.stderr or done.stdout)[-800:]}"
        )
    return done.stdout
