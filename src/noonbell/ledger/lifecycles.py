"""The stored lifecycle of each owner against what can happen: a start, its stop or crash, then the next start.

A lane has any number of engines at a time, each with a life of its own: it starts once, and ends once.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from noonbell.core.presence import LANE
from noonbell.ledger.reading import is_instant, iso

# event -> the events that may stand before it; None: nothing stands before it
_BEFORE: Final[dict[str, tuple[str | None, ...]]] = {
    "init-ok": (None, "stop-end", "crash"),
    "stop-start": ("init-ok",),
    "stop-end": ("stop-start",),
    "crash": ("init-ok", "stop-start"),
}


class Tell(Protocol):
    """Where findings go."""

    def __call__(self, managed_by: object, text: str, at: object, *, remark: bool) -> None: ...


class Lifecycles:
    """Takes lifecycle rows in order and tells those that cannot follow what came before."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._last: dict[object, tuple[str, object]] = {}  # by owner; of a lane, by owner and instance

    def take(self, row: tuple[Any, ...]) -> None:
        _, managed_by, at, instance, event, _ = row
        if event not in _BEFORE or not is_instant(at):
            self._tell(managed_by, f"its lifecycle holds {event!r} at {iso(at)}, which cannot be", at, remark=False)
            return
        shared = isinstance(managed_by, str) and managed_by.startswith(LANE)
        whose = (managed_by, instance) if shared else managed_by
        before, before_at = self._last.get(whose, (None, None))
        if before not in _BEFORE[event]:
            came = "as the first event" if before is None else f"after {before} ({iso(before_at)})"
            # a scheduler whose store fails for a moment stops all the same, so the first half of a stop may be lost
            lost = (before, event) == ("init-ok", "stop-end")
            text = f"its lifecycle has {event} at {iso(at)} by {instance} {came}"
            self._tell(managed_by, text, at, remark=lost)
        self._last[whose] = (event, at)

    def last(self, managed_by: object) -> str | None:
        """The owner's latest event."""
        return self._last.get(managed_by, (None, None))[0]
