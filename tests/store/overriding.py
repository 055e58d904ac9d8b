"""Stores of tests that replace verbs: a method `PART_VERB` of a subclass stands for that verb of that part."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from noonbell.ports import PARTS
from noonbell.store.wrapping import verbs_of, with_verbs

if TYPE_CHECKING:
    from noonbell.ports import Ledger


class Overriding:
    """To be named before the store in the bases of a class. `self.plain` is the store without the replaced verbs."""

    plain: Ledger

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.override()

    def override(self) -> None:
        plain: Any = copy(self)
        self.plain = plain
        for part in PARTS:
            whole = getattr(plain, part)
            methods = {verb: getattr(self, f"{part}_{verb}", None) for verb in verbs_of(whole)}
            known = {f"{part}_{verb}" for verb in methods}
            if unknown := {name for name in dir(self) if name.startswith(f"{part}_")} - known:
                raise TypeError(f"{type(self).__name__} replaces verbs that do not exist: {sorted(unknown)}")
            replaced = {verb: method for verb, method in methods.items() if method is not None}
            if replaced:
                vars(self)[part] = with_verbs(whole, replaced)


def find_verb(store: Any, path: str) -> tuple[Any, str]:
    """Return the part of a store, or the store itself, and the name of a verb: `runs.claim`, `prune_day`."""
    part, _, name = path.rpartition(".")
    return (getattr(store, part) if part else store), name
