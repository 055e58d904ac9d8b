"""Names of time zones: which one was likely meant. What the host knows is read once; nothing else is read."""

from __future__ import annotations

from collections import Counter, defaultdict
from difflib import get_close_matches
from functools import lru_cache
from heapq import nlargest
from typing import Final, NamedTuple
from zoneinfo import available_timezones

_LONGEST: Final = 60  # no zone has a longer name
_LIKELY: Final = 40


class _Names(NamedTuple):
    zones: dict[str, str]  # by their names and by their cities, in lower case
    holding: dict[str, list[str]]  # those names by each pair of neighbouring letters


def near_zones(name: str) -> list[str]:
    """Zones that were likely meant: by the whole name, or by the city alone.

    Only names that share the most pairs of letters with the wanted one are compared: all of them would take 10 ms.
    """
    wanted = name.strip().lower().replace(" ", "_")
    if len(wanted) > _LONGEST:
        return []
    known = _known()
    shared = Counter(text for pair in _pairs(wanted) for text in known.holding.get(pair, ()))
    likely = nlargest(_LIKELY, shared, key=lambda text: shared[text] / (len(text) + len(wanted)))
    near = get_close_matches(wanted, likely, n=3, cutoff=0.7)
    if near and near[0].replace("_", "") == wanted.replace("_", ""):
        near = near[:1]  # only the spelling differs
    return list(dict.fromkeys(known.zones[text] for text in near))


@lru_cache(maxsize=1)
def _known() -> _Names:
    zones = sorted(available_timezones())
    by_text = {zone.rpartition("/")[2].lower(): zone for zone in zones} | {zone.lower(): zone for zone in zones}
    holding: defaultdict[str, list[str]] = defaultdict(list)
    for text in by_text:
        for pair in _pairs(text):
            holding[pair].append(text)
    return _Names(by_text, dict(holding))


def _pairs(text: str) -> set[str]:
    return {text[at : at + 2] for at in range(len(text) - 1)}
