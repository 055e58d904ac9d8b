"""Whether catch-up policies did what they say after a stretch without a poll, judged from outside.

Of each stretch it is known between which instants certainly no poll completed: the only worker was dead or stopped, or
could not reach its database. When exactly the first poll after it came is not known: it was between the end of the
trouble and the first start after it. So some occurrences may be missed or late, and are not judged; all others are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.crash.schedules_judge import LedgerRows
from tests.faults.cluster.clock import MINUTE, SECOND
from tests.faults.cluster.plan import Wanted

GRACE: Final = MINUTE


class Unpolled(NamedTuple):
    """No poll between `since` and `until`; the last one before came after `polled`, and the next one by `resumed`."""

    polled: int
    since: int
    until: int
    resumed: int


def caught_up(wanted: Wanted, started: set[int], ledger: LedgerRows, stretches: Sequence[Unpolled]) -> Iterator[str]:
    """What is wrong with the verdicts of a schedule of every minute."""
    schedule = wanted.schedule_id
    verdicts: dict[int, str] = dict.fromkeys(started, "fired")
    for span in ledger.spans[schedule]:
        for at in range(span["from_at"], span["to_at"] + 1, MINUTE):
            if at in verdicts:
                yield f"{schedule} for {at} has started, and is {span['verdict']} as well"
            verdicts[at] = f"missed {span['reason']}" if span["verdict"] == "missed" else span["verdict"]
    left = sorted(wanted.occurrences())
    for at in left:
        if at not in verdicts:
            yield f"{schedule} for {at} has no verdict"
    for stretch in stretches:
        missed = [at for at in left if stretch.since < at <= stretch.until - GRACE - SECOND]
        late = [at for at in left if max(stretch.resumed - GRACE, stretch.since) < at <= stretch.until]
        unsure = sum(stretch.polled < at <= stretch.since for at in left)
        for text in _wrong(wanted, verdicts, missed, late, unsure):
            yield f"{schedule} ({wanted.catch_up}), not polled from {stretch.since} to {stretch.until}: {text}"
        left = [at for at in left if not stretch.polled < at <= stretch.resumed]
    for at in left:
        if verdicts.get(at, "fired") != "fired":
            yield f"{schedule} for {at} is {verdicts[at]}, though its lane was polled"


def _wrong(wanted: Wanted, verdicts: dict[int, str], missed: list[int], late: list[int], unsure: int) -> Iterator[str]:
    """`unsure` occurrences came just before the stretch, and may be missed with it: then they are the oldest."""
    expected: dict[int, tuple[str, ...]] = dict.fromkeys([*missed, *late], ("fired", "coalesced"))
    if wanted.catch_up == "skip":
        expected |= dict.fromkeys(missed, ("missed not polled in time",))
    elif wanted.catch_up == "run_all_capped":
        expected |= dict.fromkeys(missed[: wanted.cap], ("fired", "missed cap"))
        expected |= dict.fromkeys(missed[: max(wanted.cap - unsure, 0)], ("fired",))
        expected |= dict.fromkeys(missed[wanted.cap :], ("missed cap",))
    elif sum(verdicts.get(at) == "fired" for at in expected) > 1:
        yield "there is more than one run"
    for at, allowed in expected.items():
        if verdicts.get(at) not in allowed:
            yield f"{at} is {verdicts.get(at)}, and has to be {' or '.join(allowed)}"
