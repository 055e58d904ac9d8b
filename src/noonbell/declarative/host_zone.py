"""The time zone of the host, and whether it has changed since it was last read."""

from __future__ import annotations

import os
from datetime import tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from noonbell.errors import HostTimeZoneError

_LOCALTIME = Path("/etc/localtime")


def zone_named(value: str | tzinfo | None) -> tuple[tzinfo, str]:
    """A zone and the name under which it is recorded."""
    if isinstance(value, str):
        try:
            return ZoneInfo(value), value
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"time_zone {value!r} is not an IANA time zone; an example is 'Europe/Kyiv'") from error
    if not isinstance(value, tzinfo):
        raise ValueError(f"time_zone is {value!r}; it must be the name of an IANA zone or a tzinfo")  # noqa: TRY004 - as for a wrong name
    return value, str(getattr(value, "key", None) or value)


class HostZone:
    """Follows the host's zone: cheap to ask, reads it again only when something about it changed."""

    def __init__(self) -> None:
        self._seen = self._fingerprint()
        self.zone, self.name = self.read()

    def look(self) -> None:
        """Bring `zone` and `name` up to the host."""
        seen = self._fingerprint()
        if seen != self._seen:
            self.zone, self.name = self.read()
            self._seen = seen

    @staticmethod
    def _fingerprint() -> tuple[object, ...]:
        try:
            link = str(_LOCALTIME.readlink()) if _LOCALTIME.is_symlink() else ""
            stat = _LOCALTIME.stat()
            return os.environ.get("TZ"), link, stat.st_mtime_ns, stat.st_ino
        except OSError:
            return (os.environ.get("TZ"),)

    @staticmethod
    def read() -> tuple[tzinfo, str]:
        """The host's zone now, and its name."""
        from tzlocal import reload_localzone  # noqa: PLC0415 - only those who do not name a zone need it

        try:
            zone = reload_localzone()
        except Exception as error:
            raise HostTimeZoneError(os.environ.get("TZ"), str(error)) from error
        return zone, str(getattr(zone, "key", None) or zone)
