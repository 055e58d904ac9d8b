"""The tags of schedules, for stores that list by them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from noonbell.core.records import Edit, StoredSchedule
from noonbell.core.turns import definition_of

Tagged = tuple[str, str, int]  # a tag, the team and the sid of the schedule that has it


def tags_of(definition: str) -> tuple[str, ...]:
    # most have none, and a definition is read slower than it is looked through
    return definition_of(definition).tags if '"tags"' in definition else ()


def changed_tags(made: Iterable[tuple[StoredSchedule, Edit]]) -> tuple[list[Tagged], list[Tagged]]:
    """Return the tags that edits remove, and those they add; a schedule that is deleted loses all."""
    lost: list[Tagged] = []
    found: list[Tagged] = []
    for seen, change in made:
        before = tags_of(seen.columns.definition)
        after = () if change.epoch is None else tags_of(change.columns.definition)
        if before != after:
            lost += [(tag, seen.team, seen.sid) for tag in before]
            found += [(tag, seen.team, seen.sid) for tag in after]
    return lost, found
