"""The conformance scenarios and error cases through the adapter, on each store: every row passes, none is skipped.

Strict: a start may be late by a second, not by a minute, and reason texts are compared.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import runner
from adapter import Adapter

SCENARIOS = runner.load("scenarios.json")
FUZZED = runner.load("scenarios_fuzz.json")
STORES = ("memory", "sqlite")


@pytest.fixture(scope="module", autouse=True)
def _settled_heap() -> None:
    """Whatever other tests have left is not visited again by the collections below, of which there are a thousand."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=STORES)
def adapter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Adapter]:
    monkeypatch.setenv("NOONBELL_CONFORMANCE_STORE", request.param)
    made = Adapter()
    yield made
    made.close()
    # Coroutines of a crashed world end here, not in whichever test the collector happens to visit.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[str(s["id"]) for s in SCENARIOS])
def test_scenario(scenario: Any, adapter: Adapter) -> None:
    _passes(scenario, adapter)


@pytest.mark.parametrize("adapter", ["memory", pytest.param("sqlite", marks=pytest.mark.exhaustive)], indirect=True)
@pytest.mark.parametrize("scenario", FUZZED, ids=[str(s["id"]) for s in FUZZED])
def test_fuzzed_scenario(scenario: Any, adapter: Adapter) -> None:
    _passes(scenario, adapter)


def _passes(scenario: Any, adapter: Adapter) -> None:
    passed, why, _ = runner.run_scenario(adapter, scenario, strict=True)
    assert passed is True, f"{scenario['title']}: {why}"


def test_errors(adapter: Adapter) -> None:
    report = runner.Report()
    runner.run_errors(adapter, report)
    assert len(report.rows) == sum(len(row["cases"]) for row in runner.load("errors.json"))
    assert [f"{row['id']}: {row['why']}" for row in report.rows if row["ok"] is not True] == []
