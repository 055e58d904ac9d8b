"""Runs that were executing when their engine died. Pure.

One of them may have brought the engine down. No record says which, or whether one did. The rule for durable schedules:

1. A death of an engine counts for each run that the engine was executing (`crashes`), and for no other. A run executes,
   in the ledger, from its claim to its recorded end.
2. A run that counts one death starts again at once, with all others that the engine was executing.
3. A run that counts two deaths is on probation. An engine executes one run on probation at a time, a retry of such a
   run included; the next one starts when that one has ended (`engine.crash_probation`). Runs that are not on probation
   start beside it as usual.
4. A run that was on probation when its engine died, and was the only one there, ends as abandoned: its third death. The
   audit records it, and its schedule goes on with its next occurrence.
5. Where the dead engine was executing several runs on probation, none of them is abandoned: each counts the death and
   stays on probation. By step 3 there are several only if the end of one was not recorded when the next one started.

So a run is not abandoned for another durable run of its lane. If one run kills every engine that executes it, each
death that a neighbour counts is also a death of that run. Whenever the neighbour is on probation so is that run, and no
engine executes both. What else runs in the process counts no deaths: if a message handler, a declared task or an engine
of another lane kills it again and again, runs on probation may be abandoned for that.

A run that may not be repeated ends as unknown at its first death. A run that an engine cuts off because it is stopped
counts no death. Declared tasks count deaths and are never on probation: they start again at once, always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from noonbell.core.records import MOST_CRASHES, AuditEvent
from noonbell.core.turns import ENGINE

_encode = msgspec.json.Encoder().encode

# The errors recorded for an attempt whose engine died, and for one that its engine has cut off.
INTERRUPTED: Final = "interrupted: the instance ended before the attempt did"
CUT_OFF: Final = "interrupted: the engine was stopped before the attempt had ended"


def is_on_probation(crashes: int) -> bool:
    """Return whether a run that counts so many deaths starts on probation."""
    return crashes >= MOST_CRASHES - 1


def abandoning(executed: Iterable[tuple[str | None, int]]) -> frozenset[str | None]:
    """Return the dead engines whose run on probation is abandoned: each was executing one such run.

    `executed` has, for each run that they were executing, its engine and the deaths that it counted before.
    """
    on_probation = Counter(owner for owner, crashes in executed if is_on_probation(crashes))
    return frozenset(owner for owner, runs in on_probation.items() if runs == 1)


def quarantined(schedule_id: str, run_for: int, attempts: int, crashes: int, at: int, *, team: str) -> AuditEvent:
    """Return the audit event of a run that is abandoned; `crashes` are the deaths before the last."""
    detail = {
        "run_for": run_for,
        "attempts": attempts,
        "crashes": crashes + 1,
        "reason": f"the engine died {crashes + 1} times while this run was executing",
    }
    return AuditEvent(at, "schedule.quarantined", schedule_id, ENGINE, _encode(detail).decode(), team)
