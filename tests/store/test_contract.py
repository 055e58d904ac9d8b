"""The contract of a store: how many verbs it has, and that every store has those and no others."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from noonbell.ports import (
    PARTS,
    Ledger,
    LedgerAudit,
    LedgerDocuments,
    LedgerEngines,
    LedgerHistory,
    LedgerOutbox,
    LedgerRuns,
    LedgerSchedules,
)
from noonbell.store.memory import MemoryStore
from noonbell.store.postgres import PostgresStore
from noonbell.store.sqlite import SqliteStore
from noonbell.store.wrapping import verbs_of

# More verbs are a decision: see docs/decisions/0026-verbs-that-take-a-filter-or-a-change.md.
MOST_VERBS = 45
PROTOCOLS = {
    "schedules": LedgerSchedules, "runs": LedgerRuns, "history": LedgerHistory, "engines": LedgerEngines,
    "outbox": LedgerOutbox, "documents": LedgerDocuments, "audit": LedgerAudit,
}  # fmt: skip


def verbs(protocol: type) -> set[str]:
    return {name for name, found in vars(protocol).items() if inspect.iscoroutinefunction(found)}


def test_the_contract_has_no_more_verbs_than_were_decided() -> None:
    assert set(PROTOCOLS) == set(PARTS)
    counted = {part: sorted(verbs(protocol)) for part, protocol in {**PROTOCOLS, "ledger": Ledger}.items()}
    assert all(counted.values())
    assert sum(map(len, counted.values())) <= MOST_VERBS, counted


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_a_store_has_the_verbs_of_the_contract_and_no_others(kind: str, tmp_path: Path) -> None:
    stores: dict[str, Ledger] = {
        "memory": MemoryStore(),
        "sqlite": SqliteStore(tmp_path / "contract.db"),
        "postgres": PostgresStore("postgresql://nobody@nowhere/none"),
    }
    for part, protocol in PROTOCOLS.items():
        assert set(verbs_of(getattr(stores[kind], part))) == verbs(protocol), part
