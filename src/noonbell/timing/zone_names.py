"""Names of time zones: which one was likely meant. What the host knows is read; nothing else is."""

from __future__ import annotations

from difflib import get_close_matches
from zoneinfo import available_timezones


def near_zones(name: str) -> list[str]:
    """Zones that were likely meant: by the whole name, or by the city alone."""
    wanted = name.strip().lower().replace(" ", "_")
    zones = sorted(available_timezones())
    by_text = {zone.rpartition("/")[2].lower(): zone for zone in zones} | {zone.lower(): zone for zone in zones}
    near = get_close_matches(wanted, by_text, n=3, cutoff=0.7)
    if near and near[0].replace("_", "") == wanted.replace("_", ""):
        near = near[:1]  # only the spelling differs
    return list(dict.fromkeys(by_text[text] for text in near))
