"""Stores of which some verbs are replaced: to time them, to let them fail, to put a timeline in front of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, TypeVar

P = TypeVar("P")


def verbs_of(part: object) -> dict[str, Callable[..., Any]]:
    """Return the verbs of a store or of a part of it, by name."""
    named = ((name, getattr(part, name)) for name in dir(type(part)) if not name.startswith("_"))
    return {name: found for name, found in named if inspect.iscoroutinefunction(found)}


def with_verbs(part: P, verbs: Mapping[str, Callable[..., Any]]) -> P:
    """Return a copy of a part of a store in which these verbs are replaced; the others work as before."""
    if unknown := verbs.keys() - verbs_of(part).keys():
        raise ValueError(f"{type(part).__name__} has no verb {min(unknown)!r}")
    wrapped = copy(part)
    vars(wrapped).update(verbs)
    return wrapped


def without_replaced(store: P) -> P:
    """Return a copy of a store whose own verbs are those of its class again: what a snapshot begins with."""
    plain = copy(store)
    for name in verbs_of(store):
        vars(plain).pop(name, None)
    return plain
