"""Words as numbers on PostgreSQL: how `runs` and `attempts` keep kind, outcome, cause and owner.

So a kept run takes 69 bytes, and 31 in its index where sids ascend (see decision 0022 for other orders); what few runs
have is one text, `extra` (see the migration). A run keeps how long after its instant it began, and how long it took.
Where one of them is more than an int4 holds, about 35 minutes, both are 0 and the two instants are in `extra`.
Numbers are never changed and never used again. Runs of `runs_live` keep the words: they are few, and gone at their end.

An owner has its number from before its first claim on, by a transaction of its own: no transaction that holds the lock
of a schedule waits for a number. A run that ends without ever having had an owner has the number 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonbell.core.records import Run
from noonbell.store.postgres.connection import Transactions
from noonbell.store.words import CAUSES, KINDS, MANUAL, OUTCOMES, SCHEDULED

_KNOW: Final = "INSERT INTO owners (instance) VALUES ($1) ON CONFLICT (instance) DO NOTHING"
_NUMBER: Final = "SELECT no FROM owners WHERE instance = $1"
_HALF: Final = 2**31  # of the values of an int4 are negative
_USUAL: Final = (1, 0, 0)  # attempts, waited_us and prev_manual of most runs


def number(words: Sequence[str], word: str) -> int:
    """Return the number of a word; of one that has none, a number that no row has."""
    return words.index(word) if word in words else -1


def number_sql(words: Sequence[str], word: str) -> str:
    """Return SQL for the number of the word that the expression `word` yields."""
    cases = " ".join(f"WHEN '{one}' THEN {place}" for place, one in enumerate(words))
    return f"CASE {word} {cases} END"


def word_sql(words: Sequence[str], number: str, quote: str = "") -> str:
    """Return SQL for the word behind a number, which may be a digit in quotes; damage is shown as it stands."""
    cases = " ".join(f"WHEN {quote}{place}{quote} THEN '{one}'" for place, one in enumerate(words))
    return f"CASE {number} {cases} ELSE {number}::text END"


def times_sql(run_for: str, started_at: str, ended_at: str) -> str:
    """Return SQL for `delay_us` and `duration_us` of a run."""
    fit = _fit_sql(run_for, started_at, ended_at)
    return (
        f"CASE WHEN {fit} THEN ({started_at} - {run_for})::int4 ELSE 0 END, "
        f"CASE WHEN {fit} THEN ({ended_at} - {started_at})::int4 ELSE 0 END"
    )


def _fit_sql(run_for: str, started_at: str, ended_at: str) -> str:
    """Return SQL for whether both differences fit into int4: then neither has a bit above the lower 32."""
    return f"(({started_at} - {run_for} + {_HALF}) | ({ended_at} - {started_at} + {_HALF})) >> 32 = 0"


def _fit(run: Run) -> bool:
    return all(-_HALF <= us < _HALF for us in (run.started_at - run.run_for, run.ended_at - run.started_at))


def extra_sql(attempts: str, waited_us: str, prev_manual: str, *, times: tuple[str, str, str]) -> str:
    """Return SQL for what is kept as `extra` of a run; `times` are as for `times_sql`."""
    given = (attempts, waited_us, prev_manual)
    usual = " AND ".join(f"{value} = {most}" for value, most in zip(given, _USUAL, strict=True))
    _, started_at, ended_at = times
    numbers = f"concat_ws(',', {', '.join(given)})"
    return (
        f"CASE WHEN {_fit_sql(*times)} THEN CASE WHEN {usual} THEN '' ELSE {numbers} END "
        f"ELSE concat_ws(',', {numbers}, {started_at}, {ended_at}) END"
    )


def extra_of(run: Run) -> str:
    """Return what is kept as `extra` of a run."""
    given = (run.attempts, run.waited_us, int(run.prev_manual))
    if not _fit(run):
        return ",".join(map(str, (*given, run.started_at, run.ended_at)))
    return "" if given == _USUAL else ",".join(map(str, given))


def prev_kind_sql(alias: str) -> str:
    """Return SQL for the number of the kind of the run that ended before a run."""
    return f"CASE WHEN split_part({alias}.extra, ',', 3) = '1' THEN {MANUAL} ELSE {SCHEDULED} END"


def _instant(place: int, offset: str) -> str:
    part = f"split_part(r.extra, ',', {place + 1})"
    return f"CASE WHEN {part} = '' THEN r.run_for + {offset} ELSE {part}::int8 END"


def _extra_part(place: int) -> str:
    return f"CASE r.extra WHEN '' THEN {_USUAL[place]} ELSE split_part(r.extra, ',', {place + 1})::int8 END"


def owner_number_sql(owner: str) -> str:
    """Return SQL for the number of the owner that the expression yields."""
    return f"coalesce((SELECT o.no FROM owners o WHERE o.instance = {owner}), 0)"


def _owner_sql(number: str) -> str:
    return f"CASE {number} WHEN 0 THEN '' ELSE (SELECT o.instance FROM owners o WHERE o.no = {number}) END"


# Columns of `runs r` and `attempts a` as they are read.
RUN_WORDS: Final = {
    "kind": word_sql(KINDS, "r.kind"),
    "outcome": word_sql(OUTCOMES, "r.outcome", quote="'"),
    "started_at": _instant(3, "r.delay_us"),
    "ended_at": _instant(4, "r.delay_us + r.duration_us::int8"),
    "attempts": _extra_part(0),
    "owner": _owner_sql("r.owner"),
    "prev_manual": _extra_part(2),
    "waited_us": _extra_part(1),
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

    def __init__(self, connections: Transactions) -> None:
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
