"""The ledger shares no code with the decision: what verify proves is not computed by what it checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import noonbell.ledger

FOLDER = Path(noonbell.ledger.__file__).parent
# Names, rows, ids and instants of core; never what decides.
CORE = {
    "noonbell.core.ids",
    "noonbell.core.instants",
    "noonbell.core.lives",
    "noonbell.core.presence",
    "noonbell.core.records",
}
# Readers of stored texts, and the jitter and zone hashes that both sides have to agree on; never the timings.
TIMING = {"QuietHours", "jitter_us", "parse_interval", "parse_one_shot", "rules_hash"}
OTHERS = {"noonbell.cron", "noonbell.errors", "noonbell.ports"}


def imports(source: str) -> Iterator[tuple[str, str]]:
    """Each imported module of Noonbell, with each name that is taken from it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("noonbell"):
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "*") for alias in node.names if alias.name.startswith("noonbell"))


def foreign(source: str) -> list[tuple[str, str]]:
    return [
        (module, name)
        for module, name in imports(source)
        if not module.startswith("noonbell.ledger")
        and module not in CORE | OTHERS
        and not (module == "noonbell.timing" and name in TIMING)
    ]


def test_the_ledger_imports_nothing_that_decides() -> None:
    files = sorted(FOLDER.glob("*.py"))
    assert len(files) > 10
    assert {path.name: found for path in files if (found := foreign(path.read_text(encoding="utf-8")))} == {}


def test_an_import_of_the_decision_is_found() -> None:
    assert foreign("from noonbell.core.decide import decide") == [("noonbell.core.decide", "decide")]
    assert foreign("def f():\n    import noonbell.core.turns") == [("noonbell.core.turns", "*")]
    assert foreign("from noonbell.timing import CronTiming, jitter_us") == [("noonbell.timing", "CronTiming")]
