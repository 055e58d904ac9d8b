"""The log of an outage of a store: one line at once, one a minute while it lasts, and one when it is over.

Everything that works on one store asks it several times a second while it fails: the loop, the ends of runs, delivery,
the duties. They share one `Outage` (`outage_log_for`), so that the log shows one outage. The part that reports it first
is the one whose success ends it: on a full disk reads still succeed while nothing can be written. Failures of the other
parts are logged at debug level.
"""

from __future__ import annotations

import logging
from typing import Final
from weakref import WeakKeyDictionary

logger = logging.getLogger("noonbell.store")

_AGAIN_SECONDS: Final = 60.0
# The part that reported it may be gone. After so long without a failure the next one is another outage.
_FORGOTTEN_SECONDS: Final = 150.0


class Outage:
    """An outage of one thing: since when it lasts, and what was logged. Times are seconds on a monotonic clock."""

    def __init__(
        self,
        what: str = "The store",
        waits: str = "what is due waits until it is back",
        log: logging.Logger = logger,
    ) -> None:
        self._what = what
        self._waits = waits
        self._log = log
        self._reporter: str | None = None
        self._began = 0.0
        self._reported_at = 0.0
        self._failed = 0.0

    @property
    def lasts(self) -> bool:
        return self._reporter is not None

    def failed(self, who: str, error: object, now: float) -> None:
        """A try of `who` failed."""
        if self._reporter is not None and now - self._failed > _FORGOTTEN_SECONDS:
            self._reporter = None
        self._failed = now
        if self._reporter is None:
            self._reporter, self._began, self._reported_at = who, now, now
            self._log.error("%s failed, %s: %s", self._what, self._waits, error)
        elif now - self._reported_at >= _AGAIN_SECONDS:
            self._reporter, self._reported_at = who, now
            self._log.error("%s has failed for %s: %s", self._what, _lasting(now - self._began), error)
        else:
            self._log.debug("%s still fails (%s): %s", self._what, who, error)

    def worked(self, who: str, now: float) -> None:
        """A try of `who` went well."""
        if self._reporter == who:
            self._reporter = None
            self._log.warning("%s works again, after %s", self._what, _lasting(now - self._began))


def _lasting(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


_outages: WeakKeyDictionary[object, Outage] = WeakKeyDictionary()


def outage_log_for(store: object) -> Outage:
    """The outage of a store, the same for all who work on it."""
    return _outages.setdefault(store, Outage())
