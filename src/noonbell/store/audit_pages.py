"""Pages of the audit, from the oldest or from the newest, written once for the stores that speak SQL."""

from __future__ import annotations

from typing import Final

from noonbell.core.records import DEFAULT_TEAM
from noonbell.ports import AuditFilter

_SQL: Final = "SELECT id, at, event, subject, actor, detail, team FROM audit_events WHERE {where} ORDER BY id {order}"
_CONDITIONS: Final = (
    ("subject =", "subject"), ("event =", "event"), ("actor =", "actor"), ("at >=", "from_at"), ("at <=", "to_at"),
    ("team =", "team"),
)  # fmt: skip


def statement(
    wanted: AuditFilter, past: int | None, limit: int, sign: str, *, newest_first: bool
) -> tuple[str, list[int | str]]:
    """Return the statement with its values; `sign` is how the backend writes the n-th parameter."""
    chosen = wanted._asdict()
    given: list[tuple[str, int | str]] = [
        (part, chosen[name]) for part, name in _CONDITIONS if chosen[name] is not None
    ]
    if past is not None:
        given.append(("id <" if newest_first else "id >", past))
    conditions = [f"{part} {sign}{place}" for place, (part, _) in enumerate(given, 2)] or ["id > 0"]
    if wanted.team not in (None, DEFAULT_TEAM):
        conditions.append(f"team <> '{DEFAULT_TEAM}'")  # says nothing new, but is what their index asks for
    sql = _SQL.format(where=" AND ".join(conditions), order="DESC" if newest_first else "ASC")
    return f"{sql} LIMIT {sign}1", [limit, *(value for _, value in given)]
