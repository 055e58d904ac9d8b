"""Masking for the standard library's logging: a filter for handlers.

Put it on the handlers, not on a logger: filters of a logger do not see what its children send up. The record is
changed in place, so every handler behind it gets the masked one.
"""

from __future__ import annotations

import logging
from typing import Final

from noonbell.actions.secrets.masking import Masker

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class MaskingFilter(logging.Filter):
    """Masks message, traceback and extra fields of each record. `masker` may be replaced when secrets change."""

    def __init__(self, masker: Masker) -> None:
        super().__init__()
        self.masker = masker
        self._formatter = logging.Formatter()

    def filter(self, record: logging.LogRecord) -> bool:
        if not self.masker:
            return True
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a wrong format string is the logger's to report, but not with its arguments
            message = f"{record.msg} (its arguments do not fit)"
        record.msg, record.args = self.masker.text(message), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = self._formatter.formatException(record.exc_info)
        if record.exc_text:
            # a formatter shows the text that it finds here; the error itself would be written out anew
            record.exc_text, record.exc_info = self.masker.text(record.exc_text), None
        if record.stack_info:
            record.stack_info = self.masker.text(record.stack_info)
        for key in record.__dict__.keys() - _OWN:
            record.__dict__[key] = self.masker.value(record.__dict__[key])
        return True
