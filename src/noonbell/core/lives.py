"""Lives in the lifecycle of an owner, and when their record may be pruned. Pure.

A life is what one instance has recorded for one owner, up to its `stop-end` or `crash`: the owner is a scheduler, whose
lives follow each other, or a lane, whose engines live side by side.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_ENDS: Final = ("stop-end", "crash")


def ended_lives(events: Iterable[Iterable[Any]]) -> dict[int, int]:
    """Return the events that may be pruned by their numbers, each with the instant whose day it goes with.

    `events` are number, owner, instant, instance and name of each, in order.

    1. A life goes whole once it has ended, so that those that are left begin with their start. A life that has not
       ended stays: its engine may be up, or its crash has still to be recorded.
    2. It goes with the day of the next event of its owner. Until that one the owner may have had no instance, and the
       two together prove that.
    3. So the last life of an owner stays, whatever its age.
    """
    gone: dict[int, int] = {}
    open_lives: dict[tuple[Any, Any], list[int]] = {}
    ended: dict[Any, list[int]] = {}  # by owner: what waits for its next event
    for number, owner, at, instance, event in events:
        if type(at) is not int:
            continue  # damaged: it stays where `verify` finds it
        gone.update(dict.fromkeys(ended.pop(owner, ()), at))
        life = open_lives.setdefault((owner, instance), [])
        life.append(number)
        if event in _ENDS:
            ended.setdefault(owner, []).extend(life)
            life.clear()
    return gone
