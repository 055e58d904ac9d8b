"""That the judge of catch-up policies finds what is planted."""

from __future__ import annotations

import pytest

from tests.crash.schedules_judge import LedgerRows
from tests.faults.cluster.catch_up import Unpolled, caught_up
from tests.faults.cluster.clock import MINUTE, SECOND
from tests.faults.cluster.plan import Wanted

T0 = 1_772_323_200 * SECOND
# polled for the second minute, not for the third to the sixth; the seventh was late
GAP = Unpolled(
    T0 + 2 * MINUTE, T0 + 2 * MINUTE + 30 * SECOND, T0 + 7 * MINUTE + 30 * SECOND, T0 + 7 * MINUTE + 35 * SECOND
)
RIGHT = {
    "skip": ({1, 2, 7, 8}, {3: "missed", 4: "missed", 5: "missed", 6: "missed"}),
    "run_once": ({1, 2, 7, 8}, {3: "coalesced", 4: "coalesced", 5: "coalesced", 6: "coalesced"}),
    "run_all_capped": ({1, 2, 3, 4, 7, 8}, {5: "missed", 6: "missed"}),
}


def judged(policy: str, started: set[int], spans: dict[int, str], reason: str) -> list[str]:
    wanted = Wanted("minutely", "cron", T0 + MINUTE, T0 + 8 * MINUTE, catch_up=policy, cap=2)
    ledger = LedgerRows()
    for minute, verdict in spans.items():
        at = T0 + minute * MINUTE
        ledger.spans["minutely"].append({"from_at": at, "to_at": at, "verdict": verdict, "reason": reason})
    return list(caught_up(wanted, {T0 + minute * MINUTE for minute in started}, ledger, [GAP]))


@pytest.mark.parametrize("policy", RIGHT)
def test_what_is_right_passes(policy: str) -> None:
    reason = "cap" if policy == "run_all_capped" else "not polled in time"
    assert judged(policy, *RIGHT[policy], reason) == []


@pytest.mark.parametrize(("policy", "others"), [(a, b) for a in RIGHT for b in RIGHT if a != b])
def test_what_another_policy_does_is_found(policy: str, others: str) -> None:
    reason = "cap" if others == "run_all_capped" else "not polled in time"
    assert judged(policy, *RIGHT[others], reason) != []


def test_what_is_missed_though_it_was_polled_for_is_found() -> None:
    started, spans = RIGHT["skip"]
    (found,) = judged("skip", started - {1}, {**spans, 1: "missed"}, "not polled in time")
    assert "though its lane was polled" in found


def test_an_occurrence_without_a_verdict_is_found() -> None:
    started, spans = RIGHT["skip"]
    assert any("has no verdict" in one for one in judged("skip", started - {8}, spans, "not polled in time"))
