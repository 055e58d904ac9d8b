"""Errors of stores and timelines."""

from __future__ import annotations

from noonbell.errors.base import NoonbellError


class StoreError(NoonbellError):
    """The store could not do what was asked; nothing was half done. The original is `__cause__`."""


class StoreUnavailableError(StoreError):
    """Full, read-only, locked or gone: the same call may work later."""


class LeaseLostError(StoreUnavailableError):
    """Another process has taken over the lease. Its former holder has to acquire it again, and begin from the start."""


class StoreCorruptError(StoreError):
    """The file is not a database, or is damaged."""


class StoreUrlError(StoreError):
    """The store's address cannot be understood."""


class TimelineError(NoonbellError):
    """The Redis timeline cannot be used: its address makes no sense, or its server might drop what it is given."""


class TimelineAwayError(TimelineError):
    """The Redis timeline did not answer, or refused: the same call may work later."""
