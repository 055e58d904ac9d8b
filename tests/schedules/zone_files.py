"""Zone data that a test writes itself: compiled rules from a POSIX TZ text, in a folder that `zoneinfo` looks in."""

from __future__ import annotations

import struct
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

TOWN = "Test/Town"


def compiled(rules: str, *, padding: int = 0) -> bytes:
    """A TZif file without transitions, whose closing rule says everything; `padding` alters nothing but its bytes."""
    names = b"XXX\0" + b"\0" * padding
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, len(names))
    block = b"TZif2" + b"\0" * 15 + counts + struct.pack(">lbB", 0, 0, 0) + names
    return block + block + b"\n" + rules.encode() + b"\n"


class ZoneFolder:
    """A folder with the zone data of a host."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, rules: str, version: str, *, padding: int = 0) -> None:
        """Replace the zone data."""
        path = self.path / TOWN
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(compiled(rules, padding=padding))
        (self.path / "tzdata.zi").write_text(f"# version {version}\n")


@contextmanager
def zone_folder(path: Path) -> Iterator[ZoneFolder]:
    zoneinfo.reset_tzpath(to=[str(path)])
    ZoneInfo.clear_cache()
    try:
        yield ZoneFolder(path)
    finally:
        zoneinfo.reset_tzpath()
        ZoneInfo.clear_cache()
