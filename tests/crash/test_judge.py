"""The judge of the crash tests can say no: each story here has one thing wrong, and it is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.judge import LedgerRows, judge

RUN, NEXT = "abc:scheduled:60000000", "abc:scheduled:120000000"


def start(run: str = RUN, attempt: int = 1) -> dict[str, Any]:
    return {"what": "start", "task": "t", "run": run, "attempt": attempt}


def end(run: str = RUN, attempt: int = 1, *, ok: bool = True) -> dict[str, Any]:
    return {"what": "end", "task": "t", "run": run, "attempt": attempt, "ok": ok}


def death(point: str, attempt: int = 1, *, ended: bool = True) -> dict[str, Any]:
    return {"what": "death", "point": point, "attempts": [[1, 60_000_000, attempt]], "ended": ended}


LIFE = {"what": "life"}


def ledger(**changed: Any) -> LedgerRows:
    found = LedgerRows(ids={1: ("abc", "t")}, ended={RUN: ("succeeded", 2)}, attempts={(RUN, 1): "unknown"})
    for name, value in changed.items():
        setattr(found, name, value)
    return found


INTERRUPTED = [LIFE, start(), LIFE, start(attempt=2), end(attempt=2)]


def test_an_interrupted_run_that_starts_again_is_in_order() -> None:
    assert judge(INTERRUPTED, ledger(minutes={"t": (1, 1)})) == []


def test_a_run_that_waits_for_its_retry_is_in_order() -> None:
    story = [LIFE, start(), end(ok=False)]
    assert judge(story, ledger(ended={}, live={RUN: ("waiting", 1)}, attempts={(RUN, 1): "failed"})) == []


@pytest.mark.parametrize(("omitted", "missing"), [(range(6, 12), 0), (range(6, 13), 1), (range(5, 12), 1)])
def test_of_many_attempts_only_those_between_the_first_and_the_last_may_be_off_the_record(
    omitted: range, missing: int
) -> None:
    story = [line for attempt in range(1, 31) for line in (LIFE, start(attempt=attempt))]
    story += [LIFE, start(attempt=31), end(attempt=31)]
    recorded = {(RUN, attempt): "unknown" for attempt in range(1, 31) if attempt not in omitted}
    found = judge(story, ledger(ended={RUN: ("succeeded", 31)}, attempts=recorded))
    assert len(found) == missing
    assert all("was interrupted, but is recorded as None" in text for text in found)


@pytest.mark.parametrize(
    ("journal", "changed", "complaint"),
    [
        ([LIFE, start(), start()], {}, "started twice"),
        ([LIFE, start(), start(attempt=2), end(attempt=2)], {}, "started again in the same life"),
        ([LIFE, start(), end(), start(attempt=2), end(attempt=2)], {}, "with no death between"),
        (
            [LIFE, start(), end(), LIFE, start(attempt=2), end(attempt=2)],
            {"attempts": {(RUN, 1): "succeeded"}},
            "though its end is recorded",
        ),
        (
            [LIFE, start(), LIFE, start(NEXT), end(NEXT)],
            {"ended": {RUN: ("failed", 1), NEXT: ("succeeded", 1)}},
            "not started again before the next run",
        ),
        (
            [LIFE, start(), end(), start(NEXT), end(NEXT), LIFE, start(attempt=2), end(attempt=2)],
            {"ended": {RUN: ("succeeded", 2), NEXT: ("succeeded", 1)}},
            "after another run of its task",
        ),
        (INTERRUPTED, {"ended": {}}, "the ledger does not know the run"),
        (INTERRUPTED, {"ended": {RUN: ("succeeded", 1)}}, "but attempt 2 started"),
        (INTERRUPTED, {"ended": {RUN: ("abandoned", 2)}}, "which no task here can come to"),
        (INTERRUPTED, {"attempts": {}}, "is recorded as None"),
        (INTERRUPTED[:-1], {}, "the journal has no such end"),
        (INTERRUPTED, {"minutes": {"t": (3, 2)}}, "3 minutes passed, 2 are accounted for"),
        ([LIFE, start(), death("before-claim-commit"), *INTERRUPTED[2:]], {}, "before its claim was committed"),
        ([LIFE, start(), death("after-claim-commit"), *INTERRUPTED[2:]], {}, "this attempt never began"),
        ([LIFE, death("after-claim-commit"), LIFE], {"ended": {RUN: ("failed", 1)}}, "it was not started again"),
        ([LIFE, start(), death("before-settle-commit"), *INTERRUPTED[2:]], {}, "but has not ended"),
        (
            [LIFE, start(), end(), death("before-settle-commit")],
            {"ended": {RUN: ("succeeded", 1)}},
            "its end was lost",
        ),
        (
            [LIFE, start(), end(), death("after-settle-commit"), *INTERRUPTED[2:]],
            {},
            "its end was recorded, and yet it was started again",
        ),
    ],
)
def test_what_is_wrong_is_named(journal: list[dict[str, Any]], changed: dict[str, Any], complaint: str) -> None:
    assert complaint in "\n".join(judge(journal, ledger(**changed)))
