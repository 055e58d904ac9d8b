"""What must hold of a schedule's row and its live runs at any committed moment.

A running run has an owner and no wake-up; one that waits or is queued has a wake-up and no owner. A schedule wakes at
the first occurrence after its cursor, but for a declared one with a running run, which has no wake-up. A durable one
may wake earlier, to look, and later by its jitter or to the end of quiet hours; where those have no end it does not
wake. While a run of it executes alone it wakes at that occurrence exactly, or not at all: the occurrence has come, and
the end of the run brings the wake-up back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noonbell.ledger.account import Account
from noonbell.ledger.quiet import quiet_for_good
from noonbell.ledger.reading import is_instant, iso
from noonbell.ledger.rhythms import Steps, by_clock
from noonbell.ledger.terms import Terms, terms_of
from noonbell.timing import jitter_us

KINDS: Final = ("scheduled", "manual")
_STATES: Final = ("queued", "running", "waiting")


def check_live(account: Account, live: Mapping[str, Any], last_event: str | None) -> None:
    """One live run by itself."""
    run_for, state = live["run_for"], live["state"]
    what = f"the live {live['kind']} run for {iso(run_for)}"
    if live["kind"] not in KINDS or state not in _STATES or not is_instant(run_for):
        account.tell("damaged", f"{what} is of kind {live['kind']!r} and state {state!r}, which cannot be", at=run_for)
        return
    if account.row["removed_at"] is not None:
        account.tell("live", f"{what} is still there, though the schedule was removed", at=run_for)
    _check_holding(account, live, what)
    if state == "running" and last_event == "stop-end":
        # a stop whose store failed could not put it back; nothing is lost, the next start takes it up
        text = f"{what} counts as running, though its scheduler has stopped; the next start takes it up"
        account.tell("live", text, at=run_for, remark=True)
    for column in ("fence", "attempt", "crashes", "epoch"):
        least = 1 if column in ("fence", "epoch") or (column == "attempt" and state != "queued") else 0
        if type(live[column]) is not int or live[column] < least:
            account.tell("damaged", f"{what} has {live[column]!r} as its {column}", at=run_for)
    started = live["started_at"]
    if started is not None and not is_instant(started):
        account.tell("damaged", f"{what} started at {started!r}, which is no instant", at=run_for)
    elif started is not None and live["kind"] == "scheduled" and started < run_for:
        account.tell("times", f"{what} is said to have started at {iso(started)}, before it was due", at=run_for)


def _check_holding(account: Account, live: Mapping[str, Any], what: str) -> None:
    """Owner and wake-up against the state."""
    run_for, state, owner, wake_at = live["run_for"], live["state"], live["owner"], live["wake_at"]
    if state == "running":
        if not isinstance(owner, str) or not owner:
            account.tell("live", f"{what} is running and has no owner", at=run_for)
        if wake_at is not None:
            account.tell("live", f"{what} is running and yet waits for {iso(wake_at)}", at=run_for)
        return
    if owner is not None:
        account.tell("live", f"{what} is {state} and yet owned by {owner!r}", at=run_for)
    if not is_instant(wake_at):
        account.tell("live", f"{what} is {state} and will never wake: its wake_at is {wake_at!r}", at=run_for)


def check_wake_up(account: Account, last_epoch: Mapping[str, Any], live: list[Mapping[str, Any]]) -> None:
    """The schedule's own wake-up against its cursor; asked when the account is closed."""
    terms = terms_of(last_epoch["policies"])
    if not terms.durable:
        _check_declared(account, last_epoch, live)
    elif account.row["removed_at"] is None:
        _check_in_use(account, last_epoch, terms)
        _check_durable(account, terms, live)


def _check_declared(account: Account, last_epoch: Mapping[str, Any], live: list[Mapping[str, Any]]) -> None:
    row, next_run_at, cursor = account.row, account.row["next_run_at"], account.cursor_at
    states = {run["state"] for run in live}
    if "running" in states:
        if next_run_at is not None and next_run_at <= cursor:
            account.tell("wake-up", f"a run of it is running, and yet it wakes at {iso(next_run_at)}", at=next_run_at)
        return
    if row["removed_at"] is not None or row["enabled"] == 0:
        if next_run_at is not None:
            account.tell("wake-up", f"it is not in use, and yet it wakes at {iso(next_run_at)}", at=next_run_at)
        return
    if "queued" in states or cursor is None:
        return  # the run wakes by itself and brings the schedule's wake-up with it
    if not isinstance(last_epoch["spec"], str) or not isinstance(last_epoch["timezone"], str):
        return
    found = by_clock(last_epoch["spec"], last_epoch["timezone"], terms_of(last_epoch["policies"]).dst)
    if isinstance(found, str):
        return
    expected = found.after(cursor)
    if next_run_at == expected:
        return
    if last_epoch["epoch"] != 1 and next_run_at is not None:
        # after an edit it may look once to find its new rhythm: at once where a run of the epoch before ended, or early
        if next_run_at == cursor:
            return
        if cursor == last_epoch["from_at"] and is_instant(next_run_at) and expected and next_run_at <= expected:
            return
    wakes = "has no wake-up" if next_run_at is None else f"wakes at {iso(next_run_at)}"
    right = "nothing comes" if expected is None else f"the next occurrence is {iso(expected)}"
    account.tell("wake-up", f"it {wakes}, but after its cursor ({iso(cursor)}) {right}", at=expected)


def _check_in_use(account: Account, last_epoch: Mapping[str, Any], terms: Terms) -> None:
    """Whether it is enabled as its last epoch says; a one-shot is not once it has come."""
    enabled, said = account.row["enabled"] == 1, last_epoch["enabled"] == 1
    if terms.kind == "one_shot" and said:
        stretch = account.stretches.numbered(last_epoch["epoch"])
        if stretch is None or account.cursor_at is None or stretch.outdated:
            return
        over = _to_come(account, terms) is None
        if enabled == over:
            text = (
                "its only occurrence has come, and yet it is enabled" if over else "it has yet to come, and is disabled"
            )
            account.tell("enabled", text, at=account.cursor_at)
    elif enabled != said:
        text = f"it is {'enabled' if enabled else 'disabled'}, but its last epoch says otherwise"
        account.tell("enabled", text, at=account.cursor_at)


def _to_come(account: Account, terms: Terms) -> int | None:
    """The first occurrence after the cursor."""
    cursor, stretch = account.cursor_at, account.stretches.numbered(account.row["epoch"])
    if cursor is None or stretch is None or (isinstance(stretch.rhythm, Steps) and stretch.rhythm.in_doubt):
        return None
    found = stretch.rhythm.after(max(cursor, stretch.from_at))
    return None if found is None or (terms.end_at is not None and found > terms.end_at) else found


def _check_durable(account: Account, terms: Terms, live: list[Mapping[str, Any]]) -> None:
    row, next_run_at = account.row, account.row["next_run_at"]
    running = [run for run in live if run["state"] == "running" and run["kind"] == "scheduled"]
    stretch = account.stretches.numbered(row["epoch"])
    if running and terms.overlap != "allow":
        if sum(run["epoch"] == row["epoch"] for run in running) > 1:
            account.tell("overlap", f"{len(running)} runs of it are running at once, though none may overlap")
        if next_run_at is not None and not (stretch is not None and stretch.outdated):
            _check_beside_a_run(account, terms, running)
    if live or row["enabled"] == 0 or stretch is None or stretch.outdated:
        return
    expected = _to_come(account, terms)
    if expected is None:
        return
    if next_run_at is None and row["quiet_hours_policy_id"] is not None:
        quiet = account.quiet
        if quiet is None or quiet_for_good(quiet, expected):
            return  # it sleeps until its quiet hours change
    if not is_instant(next_run_at):
        text = (
            f"it has no wake-up, but after its cursor ({iso(account.cursor_at)}) the next occurrence is {iso(expected)}"
        )
        account.tell("wake-up", text, at=expected)
        return
    latest = expected + jitter_us(str(row["schedule_id"]), expected, terms.jitter_us)
    if next_run_at <= latest:
        return
    if row["quiet_hours_policy_id"] is not None:
        quiet = account.quiet
        if quiet is None or quiet.quiet_until(next_run_at - 1) == next_run_at:
            return  # it sleeps to the end of quiet hours
    text = f"it wakes at {iso(next_run_at)}, but its next occurrence after its cursor starts at {iso(latest)}"
    account.tell("wake-up", text, at=expected)


def _check_beside_a_run(account: Account, terms: Terms, running: list[Mapping[str, Any]]) -> None:
    """The wake-up of a schedule whose run executes alone: that of the occurrence after it, in the same epoch."""
    row, next_run_at = account.row, account.row["next_run_at"]
    expected = _to_come(account, terms)
    if expected is not None and any(run["epoch"] == row["epoch"] for run in running):
        start_at = expected + jitter_us(str(row["schedule_id"]), expected, terms.jitter_us)
        if next_run_at in (expected, start_at):  # that of an interval is without its jitter until it is looked at
            return
        text = f"a run of it is running, and it wakes at {iso(next_run_at)}, but what follows starts at {iso(start_at)}"
    else:
        text = f"a run of it is running, and yet it wakes at {iso(next_run_at)}"
    account.tell("wake-up", text, at=next_run_at)
