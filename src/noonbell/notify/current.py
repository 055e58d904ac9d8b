"""The current states of schedules and monitors, for summaries: what was held back may be over by then.

A schedule is `failing` or `working` by how its last run ended; a run that is between two attempts has not ended. A
monitor has its status. A subject that was deleted, belongs to another team or never ended a run has no state.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from noonbell.notify.channel_limits import Held
from noonbell.notify.notice_records import Subject
from noonbell.ports import DocumentFilter, Ledger, ScheduleFilter

States = dict[tuple[Subject, str], str]


class _State(msgspec.Struct):
    status: str


class _Monitor(msgspec.Struct):
    state: _State


_monitor = msgspec.json.Decoder(_Monitor).decode


async def current_states(store: Ledger, held: Iterable[Held], team: str) -> States:
    """The state of each subject that something was held back of, by subject and id."""
    ids: dict[Subject, list[str]] = {"schedule": [], "monitor": []}
    for subject, subject_id in sorted({(one.subject, one.subject_id) for one in held if one.subject_id is not None}):
        ids[subject].append(subject_id)
    states: States = {}
    if ids["schedule"]:
        found = [
            one for one in await store.schedules.find(ScheduleFilter(schedule_ids=ids["schedule"])) if one.team == team
        ]
        last = await store.history.past_runs([one.sid for one in found], None, 1)
        outcomes = {run.sid: run.outcome for run in last}
        for one in found:
            if one.sid in outcomes:
                states["schedule", one.schedule_id] = "working" if outcomes[one.sid] == "succeeded" else "failing"
    if ids["monitor"]:
        for document in await store.documents.find(DocumentFilter("monitor", ids["monitor"])):
            if document.team == team:
                states["monitor", document.id] = _monitor(document.body).state.status
    return states
