"""Checks of a schedule's row, its live runs and its missed spans, at any committed moment.

A running run has an owner and no wake-up; one that waits or is queued has a wake-up and no owner.

A schedule that is in use wakes at the first occurrence after its cursor, or earlier. It may wake later by its jitter or
at the end of quiet hours; where those have no end it does not wake. While a run of it executes alone it wakes at that
occurrence exactly, or not at all: then the occurrence has come, and the end of the run brings the wake-up back. So it
is while a retry waits that new occurrences do not preempt, and while a manual run executes the wake-up may be taken
away as well. A schedule that is removed or dormant does not wake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noonbell.core.ids import KINDS
from noonbell.core.presence import MOST_GAPS, Polls
from noonbell.ledger.ledger_rows import LATEST, is_instant, iso
from noonbell.ledger.policies import EpochPolicies, policies_of, quiet_for_good
from noonbell.ledger.recurrence import EveryN
from noonbell.ledger.schedule_audit import ScheduleAudit
from noonbell.ports import Ledger, ScheduleFilter
from noonbell.timing import jitter_us

_STATES: Final = ("queued", "running", "waiting")
_NOT_POLLED: Final = "not polled in time"
_AT_ONCE: Final = 1_000
# Engines that poll again together may each have read that the gap lasts; the first one's end is recorded.
_TOGETHER_US: Final = 30_000_000


def check_live(audit: ScheduleAudit, live: Mapping[str, Any], last_event: str | None) -> None:
    """Check one live run by itself."""
    run_for, state = live["run_for"], live["state"]
    what = f"the live {live['kind']} run for {iso(run_for)}"
    if live["kind"] not in KINDS or state not in _STATES or not is_instant(run_for):
        audit.report("damaged", f"{what} is of kind {live['kind']!r} and state {state!r}, which cannot be", at=run_for)
        return
    if audit.row["removed_at"] is not None:
        audit.report("live", f"{what} is still there, though the schedule was removed", at=run_for)
    _check_holding(audit, live, what)
    if state == "running" and last_event == "stop-end":
        # a stop whose store failed could not release it; nothing is lost, the next start restarts it
        text = f"{what} counts as running, though its scheduler has stopped; the next start restarts it"
        audit.report("live", text, at=run_for, remark=True)
    for column in ("fence", "attempt", "crashes", "epoch"):
        least = 1 if column in ("fence", "epoch") or (column == "attempt" and state != "queued") else 0
        if type(live[column]) is not int or live[column] < least:
            audit.report("damaged", f"{what} has {live[column]!r} as its {column}", at=run_for)
    started = live["started_at"]
    if started is not None and not is_instant(started):
        audit.report("damaged", f"{what} started at {started!r}, which is not an instant", at=run_for)
    elif started is not None and live["kind"] == "scheduled" and started < run_for:
        audit.report("times", f"{what} is said to have started at {iso(started)}, before it was due", at=run_for)


def _check_holding(audit: ScheduleAudit, live: Mapping[str, Any], what: str) -> None:
    """Check the owner and the wake-up of a live run against its state."""
    run_for, state, owner, wake_at = live["run_for"], live["state"], live["owner"], live["wake_at"]
    if state == "running":
        if not isinstance(owner, str) or not owner:
            audit.report("live", f"{what} is running and has no owner", at=run_for)
        if wake_at is not None:
            audit.report("live", f"{what} is running and yet waits for {iso(wake_at)}", at=run_for)
        return
    if owner is not None:
        audit.report("live", f"{what} is {state} and yet owned by {owner!r}", at=run_for)
    if not is_instant(wake_at):
        audit.report("live", f"{what} is {state} and will never wake: its wake_at is {wake_at!r}", at=run_for)


# --- the wake-up of a schedule ----------------------------------------------------------------------------------------


def check_wake_up(audit: ScheduleAudit, last_epoch: Mapping[str, Any], live: list[Mapping[str, Any]]) -> None:
    """Check the schedule's own wake-up against its cursor, once the audit is closed."""
    row, next_run_at = audit.row, audit.row["next_run_at"]
    policies = policies_of(last_epoch["policies"], row["managed_by"])
    if row["removed_at"] is not None:
        _check_out_of_use(audit)
        return
    _check_enabled(audit, last_epoch, policies)
    decided = audit.epochs.numbered(row["epoch"])
    outdated = decided is not None and decided.outdated
    running = [run for run in live if run["state"] == "running" and run["kind"] == "scheduled"]
    if running and policies.overlap != "allow":
        if sum(run["epoch"] == row["epoch"] for run in running) > 1:
            audit.report("overlap", f"{len(running)} runs of it are running at once, though none may overlap")
        if next_run_at is not None and not outdated:
            _check_beside_a_run(audit, policies, running)
    elif row["enabled"] == 0:
        if policies.consumes:  # others keep an instant that nothing wakes for, after a manual run
            _check_out_of_use(audit)
    elif decided is not None and not outdated and all(run["state"] == "waiting" for run in live):
        held = bool(live) and policies.retry_vs_new != "preempt"
        if not (held and next_run_at is None):
            _check_next_run(audit, policies)
    elif decided is not None and not outdated and policies.overlap != "allow" and next_run_at is not None:
        _check_beside_a_manual_run(audit, policies, live)


def _check_out_of_use(audit: ScheduleAudit) -> None:
    next_run_at = audit.row["next_run_at"]
    if next_run_at is not None:
        audit.report("wake-up", f"it is not in use, and yet it wakes at {iso(next_run_at)}", at=next_run_at)


def _check_enabled(audit: ScheduleAudit, last_epoch: Mapping[str, Any], policies: EpochPolicies) -> None:
    """Check that it is enabled as its last epoch says; a one-shot is not once it has come, nor a dormant task."""
    enabled, said = audit.row["enabled"] == 1, last_epoch["enabled"] == 1
    if policies.kind == "one_shot" and said:
        decided = audit.epochs.numbered(last_epoch["epoch"])
        if decided is None or audit.cursor_at is None or decided.outdated:
            return
        over = _upcoming(audit, policies) is None
        if enabled == over:
            text = (
                "its only occurrence has come, and yet it is enabled" if over else "it has yet to come, and is disabled"
            )
            audit.report("enabled", text, at=audit.cursor_at)
    elif enabled != said and not (said and policies.consumes):
        text = f"it is {'enabled' if enabled else 'disabled'}, but its last epoch says otherwise"
        audit.report("enabled", text, at=audit.cursor_at)


def _upcoming(audit: ScheduleAudit, policies: EpochPolicies) -> int | None:
    """Return the first occurrence after the cursor."""
    cursor, decided = audit.cursor_at, audit.epochs.numbered(audit.row["epoch"])
    if cursor is None or decided is None or (isinstance(decided.recurrence, EveryN) and decided.recurrence.in_doubt):
        return None
    found = decided.recurrence.after(max(cursor, decided.from_at))
    return None if found is None or (policies.end_at is not None and found > policies.end_at) else found


def _check_next_run(audit: ScheduleAudit, policies: EpochPolicies) -> None:
    """Check the wake-up of a schedule that no run of its own holds up."""
    row, next_run_at, expected = audit.row, audit.row["next_run_at"], _upcoming(audit, policies)
    if expected is None:
        return
    starts_at = expected + jitter_us(str(row["schedule_id"]), expected, policies.jitter_us)
    if is_instant(next_run_at) and next_run_at <= starts_at:
        return
    if row["quiet_hours_policy_id"] is not None and (next_run_at is None or is_instant(next_run_at)):
        quiet = audit.quiet
        sleeps = quiet is None or (
            quiet_for_good(quiet, expected)
            if next_run_at is None
            else quiet.quiet_until(next_run_at - 1) == next_run_at
        )
        if sleeps:
            return  # to the end of its quiet hours, or until they change
    wakes = "has no wake-up" if next_run_at is None else f"wakes at {iso(next_run_at)}"
    text = f"it {wakes}, but after its cursor ({iso(audit.cursor_at)}) the next occurrence is {iso(expected)}"
    text += f", which starts at {iso(starts_at)}" if starts_at > expected else ""
    audit.report("wake-up", text, at=expected)


def _check_beside_a_run(audit: ScheduleAudit, policies: EpochPolicies, running: list[Mapping[str, Any]]) -> None:
    """Check the wake-up of a schedule whose run executes alone: it is the next occurrence of the same epoch."""
    row, next_run_at, expected = audit.row, audit.row["next_run_at"], _upcoming(audit, policies)
    if expected is not None and any(run["epoch"] == row["epoch"] for run in running):
        starts_at = expected + jitter_us(str(row["schedule_id"]), expected, policies.jitter_us)
        if next_run_at in (expected, starts_at):  # that of an interval is without its jitter until it is polled for
            return
        text = (
            f"a run of it is running, and it wakes at {iso(next_run_at)}, but what follows starts at {iso(starts_at)}"
        )
    else:
        text = f"a run of it is running, and yet it wakes at {iso(next_run_at)}"
    audit.report("wake-up", text, at=next_run_at)


def _check_beside_a_manual_run(audit: ScheduleAudit, policies: EpochPolicies, live: list[Mapping[str, Any]]) -> None:
    """Check the wake-up of a schedule whose manual run executes. Where there is none, the end of the run sets it."""
    if any(run["state"] == "running" for run in live):
        _check_next_run(audit, policies)


# --- missed occurrences -----------------------------------------------------------------------------------------------


class PollCheck:
    """Checks that occurrences that are recorded as missed were not polled for.

    A missed occurrence has to lie in a gap between two polls of its lane, or after the last poll: an edit decides what
    came before it, whether an engine runs or not. The latest gaps are kept, so what came before them is not checked,
    nor is a schedule that has been deleted.
    """

    def __init__(self, store: Ledger) -> None:
        self._store = store
        self._missed: dict[str, list[tuple[ScheduleAudit, int, int, int]]] = {}  # by schedule id

    def take(self, audit: ScheduleAudit, span: Mapping[str, Any]) -> None:
        if span["verdict"] == "missed" and span["reason"] == _NOT_POLLED and isinstance(audit.row["schedule_id"], str):
            decided = audit.epochs.holding(span["to_at"])
            jitter = 0 if decided is None else decided.policies.jitter_us
            found = self._missed.setdefault(audit.row["schedule_id"], [])
            found.append((audit, span["from_at"], span["to_at"], jitter))

    async def finish(self) -> None:
        missed, self._missed = self._missed, {}
        if not missed:
            return
        polls, ids = await self._store.engines.polls(), list(missed)
        for first in range(0, len(ids), _AT_ONCE):
            for stored in await self._store.schedules.find(ScheduleFilter(schedule_ids=ids[first : first + _AT_ONCE])):
                for audit, from_at, to_at, jitter in missed[stored.schedule_id]:
                    if not _unpolled(polls.get(stored.lane, Polls()), from_at, to_at, jitter):
                        text = f"{iso(from_at)} to {iso(to_at)} is recorded as missed, but its lane was polled in time"
                        audit.report("missed", text, at=from_at)


def _unpolled(polls: Polls, from_at: int, to_at: int, jitter: int) -> bool:
    gaps = polls.at(LATEST)
    if len(polls.gaps) == MOST_GAPS and from_at <= gaps[0].since:
        return True
    return any(gap.since < from_at + jitter and to_at <= gap.missed_upto + _TOGETHER_US for gap in gaps)
