"""Masking for the standard library's logging.

`MaskingFilter` is a filter for handlers. Put it on the handlers, not on a logger: filters of a logger do not see what
its children send up. A record that shows a secret is changed in place, so every handler behind it gets the masked one;
any other is left as it is, its error included.

The loggers of this package, and those of the libraries that it sends requests with, are guarded by themselves: each
has a filter that knows the secrets of the process, from the moment when there are any.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from typing import Any, Final, Protocol

from noonbell.actions.secrets.masking import Masker, mask_by_all

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# By name, since a module may be imported, and its logger used, after the filter was put in place.
OWN_LOGGERS: Final = (
    "noonbell",
    "noonbell.actions",
    "noonbell.api",
    "noonbell.delivery",
    "noonbell.engine",
    "noonbell.http",
    "noonbell.monitors",
    "noonbell.notify",
    "noonbell.periodic",
    "noonbell.receive",
    "noonbell.scheduler",
    "noonbell.schedules",
    "noonbell.secrets",
    "noonbell.service",
    "noonbell.store",
    "noonbell.timeline",
)
_OTHER_LOGGERS: Final = ("asyncio", "aiohttp.client", "aiohttp.internal")


class Masks(Protocol):
    """A masker as the filter needs it: false where there is nothing to mask."""

    def __bool__(self) -> bool: ...

    def text(self, text: str, /) -> str: ...

    def value(self, value: Any, /) -> Any: ...


class MaskingFilter(logging.Filter):
    """Masks message, traceback and extra fields of each record. `masker` may be replaced when secrets change."""

    def __init__(self, masker: Masks) -> None:
        super().__init__()
        self.masker = masker
        self._formatter = logging.Formatter()

    def filter(self, record: logging.LogRecord) -> bool:
        if not self.masker:
            return True
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a wrong format string is the logger's to report, but not with its arguments
            record.msg, record.args = self.masker.text(f"{record.msg} (its arguments do not fit)"), ()
        else:
            if (masked := self.masker.text(message)) != message:
                record.msg, record.args = masked, ()
        self._mask_error(record)
        if record.stack_info:
            record.stack_info = self.masker.text(record.stack_info)
        for key in record.__dict__.keys() - _OWN:
            record.__dict__[key] = self.masker.value(record.__dict__[key])
        return True

    def _mask_error(self, record: logging.LogRecord) -> None:
        shown = record.exc_text
        if record.exc_info and not shown:
            shown = self._formatter.formatException(record.exc_info)
        if shown and (masked := self.masker.text(shown)) != shown:
            # a formatter shows the text that it finds here; the error itself would be written out again
            record.exc_text, record.exc_info = masked, None


class SecretSource(Protocol):
    """A source of known secrets."""

    @property
    def maskers(self) -> Sequence[Masker]: ...


class _Process:
    """All secrets that are known in this process, for as long as a source has them."""

    def __init__(self) -> None:
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, known: SecretSource) -> None:
        self._known.add(known)

    def __bool__(self) -> bool:
        return bool(self._maskers())

    def text(self, text: str) -> str:
        return mask_by_all(text, self._maskers())

    def value(self, value: Any) -> Any:
        for masker in self._maskers():
            value = masker.value(value)
        return value

    def _maskers(self) -> list[Masker]:
        return [masker for known in list(self._known) for masker in known.maskers]


_PROCESS: Final = _Process()
_FILTER: Final = MaskingFilter(_PROCESS)


def process_filter() -> MaskingFilter:
    """Return the filter of this process, for a handler that also takes what other loggers send."""
    return _FILTER


def mask_known(text: str) -> str:
    """Return the text without any secret that this process knows."""
    return _PROCESS.text(text)


def guard(known: SecretSource) -> None:
    """Keep these secrets out of what the guarded loggers send, for as long as `known` lives."""
    _PROCESS.add(known)
    for name in (*OWN_LOGGERS, *_OTHER_LOGGERS):
        logging.getLogger(name).addFilter(_FILTER)
