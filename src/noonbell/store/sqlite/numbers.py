"""Words as numbers: how `runs` and `attempts` keep kind, outcome, cause and owner.

A row is half as long as with the words themselves. Numbers are never changed nor given again. A word that has none is
kept as it is, and so is whatever else a damaged row holds. The views `run_records` and `attempt_records` have the
words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import apsw
import msgspec

from noonbell.store.words import CAUSES, KINDS, OUTCOMES

_encode = msgspec.json.Encoder().encode

_KNOWN_OWNERS: Final = "SELECT o.instance, o.no FROM json_each(?) b CROSS JOIN owners o ON o.instance = b.value"
_NEW_OWNERS: Final = "INSERT INTO owners (instance) SELECT value FROM json_each(?) RETURNING instance, no"


def number(words: Sequence[str], word: str) -> int | str:
    return words.index(word) if word in words else word


def number_sql(words: Sequence[str], word: str) -> str:
    """SQL for the number of the word that the expression `word` yields."""
    cases = " ".join(f"WHEN '{one}' THEN {place}" for place, one in enumerate(words))
    return f"CASE {word} {cases} ELSE {word} END"


def word_sql(words: Sequence[str], number: str) -> str:
    """SQL for the word behind a column."""
    cases = " ".join(f"WHEN {place} THEN '{one}'" for place, one in enumerate(words))
    return f"CASE {number} {cases} ELSE {number} END"


def owner_number_sql(owner: str) -> str:
    return f"coalesce((SELECT o.no FROM owners o WHERE o.instance = {owner}), {owner})"


def owner_sql(number: str) -> str:
    found = f"(SELECT o.instance FROM owners o WHERE o.no = {number})"
    return f"iif(typeof({number}) = 'integer', coalesce({found}, {number}), {number})"


def owner_numbers(db: apsw.Connection, owners: Iterable[str]) -> dict[str, int]:
    """The numbers of instances; one that has none yet is given the next."""
    wanted = set(owners)
    found: dict[str, int] = dict(_rows(db, _KNOWN_OWNERS, wanted))
    if len(found) < len(wanted):
        found.update(_rows(db, _NEW_OWNERS, wanted - found.keys()))
    return found


def _rows(db: apsw.Connection, sql: str, names: Iterable[str]) -> Any:
    return db.execute(sql, (_encode(sorted(names)).decode(),)).fetchall()


# Columns of `runs r` and `attempts a` as they are read.
RUN_WORDS: Final = {
    "kind": word_sql(KINDS, "r.kind"),
    "outcome": word_sql(OUTCOMES, "r.outcome"),
    "owner": owner_sql("r.owner"),
}
ATTEMPT_WORDS: Final = {
    "kind": word_sql(KINDS, "a.kind"),
    "outcome": word_sql(OUTCOMES, "a.outcome"),
    "cause": word_sql(CAUSES, "a.cause"),
    "owner": owner_sql("a.owner"),
}
