"""What runs add up to, beside the plainest way of counting; and chains that are closed over what goes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from noonbell.core.records import History, Kind, Outcome, Run
from noonbell.core.run_chain import RunKey, key_of, mended
from noonbell.schedules.statistics import Spread, statistics_of

KINDS: st.SearchStrategy[Kind] = st.sampled_from(["scheduled", "manual"])
OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(["succeeded", "succeeded", "failed", "abandoned", "unknown"])


@st.composite
def histories(draw: st.DrawFn) -> list[Run]:
    """Ended runs of one schedule, newest first."""
    found: list[Run] = []
    for place in range(draw(st.integers(0, 40))):
        run_for = 1_000_000 * place + draw(st.integers(0, 10))
        started = run_for + draw(st.integers(0, 5_000_000))
        ended = started + draw(st.integers(0, 9_000_000))
        before = found[-1] if found else None
        found.append(
            Run(
                7, run_for, draw(KINDS), draw(OUTCOMES), 1, started, ended, "me", 1,
                None if before is None else before.run_for, before is not None and before.kind == "manual",
            )
        )  # fmt: skip
    return found[::-1]


def at_most(values: list[int], percent: int) -> int:
    """The smallest of the values that at least so many percent of them do not exceed."""
    enough = [one for one in values if 100 * sum(other <= one for other in values) >= percent * len(values)]
    return min(enough)


def spread(values: list[int]) -> Spread | None:
    if not values:
        return None
    return Spread(*(timedelta(microseconds=at_most(values, percent)) for percent in (50, 95)))


@given(histories(), st.integers(0, 30), st.integers(0, 100))
def test_the_numbers_are_those_of_counting_by_hand(runs: list[Run], pruned: int, last: int) -> None:
    good = sum(run.outcome == "succeeded" for run in runs)
    history = History(7, "s", "name", None, None, False, len(runs) + pruned, good + pruned)
    seen = runs[:last]
    found = statistics_of(history, seen, last, lambda run: f"{run.kind} {run.run_for}")
    outcomes = [run.outcome for run in seen]
    counted: dict[str, Any] = {name: outcomes.count(name) for name in ("succeeded", "failed", "abandoned", "unknown")}
    assert {name: getattr(found, name) for name in counted} == counted
    assert found.runs == len(seen) == sum(counted.values())
    assert found.success_rate == (counted["succeeded"] / len(seen) if seen else None)
    assert found.duration == spread([run.ended_at - run.started_at for run in seen])
    assert found.lateness == spread([run.started_at - run.run_for for run in seen if run.kind == "scheduled"])
    assert (found.all_runs, found.all_succeeded) == (len(runs) + pruned, good + pruned)
    assert found.pruned == sum(1 for place in range(len(runs) + pruned) if len(runs) <= place < last)
    streak = 0
    while streak < len(seen) and (outcomes[streak] == "succeeded") == (outcomes[0] == "succeeded"):
        streak += 1
    assert (0 if found.streak is None else found.streak.runs) == streak
    if found.streak is not None:
        assert found.streak.of == ("succeeded" if outcomes[0] == "succeeded" else "failed")
    bad = [run for run in seen if run.outcome != "succeeded"]
    assert (found.last_failure is None) == (not bad)
    if found.last_failure is not None:
        assert found.last_failure.run_id == f"{bad[0].kind} {bad[0].run_for}"
        assert found.last_failure.outcome == bad[0].outcome


@given(histories(), st.data())
def test_a_chain_that_is_closed_leads_to_all_that_stays(chain: list[Run], data: st.DataObject) -> None:
    gone = {key_of(run) for run in chain if data.draw(st.booleans())}
    first, changed = mended(chain, gone)
    kept = {key_of(run): run for run in chain if key_of(run) not in gone}
    unchanged = dict(kept)
    kept |= {key_of(run): run for run in changed}
    assert all(unchanged[key] != run for key, run in kept.items() if run in changed), "nothing is written in vain"
    assert set(kept) == set(unchanged)
    place: RunKey | None = first or (key_of(chain[0]) if chain else None)
    reached = []
    while place is not None and place in kept:
        reached.append(place)
        run = kept[place]
        place = None if run.prev_for is None else RunKey(run.prev_for, "manual" if run.prev_manual else "scheduled")
    assert reached == [key_of(run) for run in chain if key_of(run) not in gone]
