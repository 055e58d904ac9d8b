"""The fires and quiet hours that move when a zone gets other rules. Pure.

Only stretches in which the two zones differ are walked, and no further than a limit: a schedule that fires at the same
instants under both, as every minute does, has no differences however often it fires.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from itertools import islice, pairwise, zip_longest
from typing import Final, NamedTuple

from noonbell.cron import zone_of
from noonbell.timing.quiet_hours import QuietHours
from noonbell.timing.timing_protocol import SECOND, Timing

YEAR: Final = 366 * 86_400 * SECOND
# A clock change moves civil times by hours at most; a day each way holds all that belongs to a stretch.
_MARGIN: Final = 86_400 * SECOND
_MOST_WALKED: Final = 10_000
_MOST_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Moved:
    """Fires that are elsewhere now, the first of them side by side: (before, after), None where there is none.

    `fires` is how many of the old ones are gone or of the new ones have come, whichever is more; with `more` there are
    at least so many.
    """

    fires: int
    shown: list[tuple[int | None, int | None]]
    more: bool


def moved_fires(before: Timing, after: Timing, stretches: list[tuple[int, int]]) -> Moved:
    """Return the fires that move in these stretches of time."""
    gone: list[int] = []
    come: list[int] = []
    left = _MOST_WALKED
    for start, end in stretches:
        old, new = (list(islice(_fires(timing, start, end), left)) for timing in (before, after))
        cut = len(old) == left or len(new) == left
        if cut:  # beyond the shorter of the two nothing is known
            known = min(found[-1] for found in (old, new) if len(found) == left)
            old, new = ([fire for fire in found if fire <= known] for found in (old, new))
        common = set(old) & set(new)
        gone.extend(fire for fire in old if fire not in common)
        come.extend(fire for fire in new if fire not in common)
        left -= max(len(old), len(new))
        if cut or left <= 0:
            return _moved(gone, come, more=True)
    return _moved(gone, come, more=False)


def _moved(gone: list[int], come: list[int], *, more: bool) -> Moved:
    return Moved(max(len(gone), len(come)), list(islice(zip_longest(gone, come), _MOST_SHOWN)), more)


def _fires(timing: Timing, after: int, upto: int) -> Iterator[int]:
    fire = timing.following(after)
    while fire is not None and fire <= upto:
        yield fire
        fire = timing.following(fire)


class Silence(NamedTuple):
    """A stretch [from_at, to_at) that is quiet now and was not, or the other way round."""

    from_at: int
    to_at: int
    quiet: bool


def moved_silence(before: QuietHours, after: QuietHours, stretches: Iterable[tuple[int, int]]) -> list[Silence]:
    """Return what is quiet under one and not under the other, in these stretches of time."""
    found: list[Silence] = []
    for start, end in stretches:
        at = start
        while at < end:
            old, new = before.phase(at), after.phase(at)
            until = min(old.until, new.until, end)
            if old.quiet != new.quiet:
                found.append(Silence(at, until, new.quiet))
            at = until
    return found


def differing(before: tzinfo, after: tzinfo, start: int, end: int) -> list[tuple[int, int]]:
    """The stretches of (start, end] in which two zones differ, a day wider each way, and apart from each other."""
    first, last = start // SECOND, end // SECOND
    old, new = zone_of(before), zone_of(after)
    changes = (*old.transitions(first, last), *new.transitions(first, last))
    edges = sorted({first, last, *(change[0] for change in changes)})
    found: list[tuple[int, int]] = []
    for left, right in pairwise(edges):
        if old.offset(left) == new.offset(left):
            continue
        low, high = max(left * SECOND - _MARGIN, start), min(right * SECOND + _MARGIN, end)
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], high
        else:
            found.append((low, high))
    return found
