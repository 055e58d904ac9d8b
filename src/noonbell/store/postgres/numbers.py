"""Words as numbers on PostgreSQL: how `runs` and `attempts` keep kind, outcome, cause and owner.

So a kept run takes 125 bytes, 32 of them in its index. Numbers are never changed and never used again. Live runs keep
the words: they are few, and gone when they end.

An owner has its number from before its first claim on, by a transaction of its own: no transaction that holds the lock
of a schedule waits for a number. A run that ends without ever having had an owner has the number 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonbell.store.postgres.connection import Connections
from noonbell.store.words import CAUSES, KINDS, OUTCOMES

_KNOW: Final = "INSERT INTO owners (instance) VALUES ($1) ON CONFLICT (instance) DO NOTHING"
_NUMBER: Final = "SELECT no FROM owners WHERE instance = $1"


def number(words: Sequence[str], word: str) -> int:
    """Return the number of a word; of one that has none, a number that no row has."""
    return words.index(word) if word in words else -1


def number_sql(words: Sequence[str], word: str) -> str:
    """Return SQL for the number of the word that the expression `word` yields."""
    cases = " ".join(f"WHEN '{one}' THEN {place}" for place, one in enumerate(words))
    return f"CASE {word} {cases} END"


def word_sql(words: Sequence[str], number: str) -> str:
    """Return SQL for the word behind a number; damage is shown as it stands."""
    cases = " ".join(f"WHEN {place} THEN '{one}'" for place, one in enumerate(words))
    return f"CASE {number} {cases} ELSE {number}::text END"


def owner_number_sql(owner: str) -> str:
    """Return SQL for the number of the owner that the expression yields."""
    return f"coalesce((SELECT o.no FROM owners o WHERE o.instance = {owner}), 0)"


def _owner_sql(number: str) -> str:
    return f"CASE {number} WHEN 0 THEN '' ELSE (SELECT o.instance FROM owners o WHERE o.no = {number}) END"


# Columns of `runs r` and `attempts a` as they are read.
RUN_WORDS: Final = {
    "kind": word_sql(KINDS, "r.kind"),
    "outcome": word_sql(OUTCOMES, "r.outcome"),
    "owner": _owner_sql("r.owner"),
}
ATTEMPT_WORDS: Final = {
    "kind": word_sql(KINDS, "a.kind"),
    "outcome": word_sql(OUTCOMES, "a.outcome"),
    "cause": word_sql(CAUSES, "a.cause"),
    "owner": _owner_sql("a.owner"),
}


def run_columns(fields: Sequence[str]) -> str:
    """Return these columns of `runs r`, in words and under their names."""
    return ", ".join(f"{RUN_WORDS[name]} AS {name}" if name in RUN_WORDS else f"r.{name}" for name in fields)


def attempt_columns(fields: Sequence[str]) -> str:
    """Return these columns of `attempts a`, in words and under their names."""
    return ", ".join(f"{ATTEMPT_WORDS[name]} AS {name}" if name in ATTEMPT_WORDS else f"a.{name}" for name in fields)


class Owners:
    """The owners that are known to have a number."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._known: dict[str, int] = {}

    async def know(self, owner: str) -> int:
        """Give an owner its number, and wait until that is committed."""
        if owner not in self._known:
            async with self._connections.writing() as db:
                await db.execute(_KNOW, owner)
                number: int = await db.fetchval(_NUMBER, owner)
            self._known[owner] = number
        return self._known[owner]
