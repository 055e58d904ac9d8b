"""What must hold of a schedule's row and its live runs at any committed moment.

A running run has an owner and no wake-up; one that waits or is queued has a wake-up and no owner. A schedule with a
running run has no wake-up of its own; any other wakes at the first occurrence after its cursor. Of a durable schedule
only the last is asked, and not when: its policies may put it off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noonbell.ledger.account import Account
from noonbell.ledger.reading import Bounds, dst_policy, durable_bounds, is_instant, iso, rhythm

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
    """The schedule's own wake-up against its cursor."""
    bounds = durable_bounds(last_epoch["policies"])
    if bounds is None:
        _check_declared(account, last_epoch, live)
    else:
        _check_durable(account, last_epoch, bounds, live)


def _check_declared(account: Account, last_epoch: Mapping[str, Any], live: list[Mapping[str, Any]]) -> None:
    row, next_run_at, cursor = account.row, account.row["next_run_at"], account.cursor_at
    states = {run["state"] for run in live}
    if "running" in states:
        if next_run_at is not None:
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
    found = rhythm(last_epoch["spec"], last_epoch["timezone"], dst_policy(last_epoch["policies"]))
    if isinstance(found, str):
        return
    expected = found.after(cursor)
    if next_run_at == expected:
        return
    if last_epoch["epoch"] != 1 and next_run_at is not None:
        # after an edit it may look once to find its new rhythm: at the end of a run of the epoch before, or early
        if next_run_at in (row["last_success_at"], row["last_failure_at"]):
            return
        if cursor == last_epoch["from_at"] and is_instant(next_run_at) and expected and next_run_at <= expected:
            return
    wakes = "has no wake-up" if next_run_at is None else f"wakes at {iso(next_run_at)}"
    right = "nothing comes" if expected is None else f"the next occurrence is {iso(expected)}"
    account.tell("wake-up", f"it {wakes}, but after its cursor ({iso(cursor)}) {right}", at=expected)


def _check_durable(
    account: Account, last_epoch: Mapping[str, Any], bounds: Bounds, live: list[Mapping[str, Any]]
) -> None:
    """A durable schedule may wake later than its next occurrence (jitter, quiet hours), but wake it must."""
    row, cursor = account.row, account.cursor_at
    if live or row["next_run_at"] is not None or row["removed_at"] is not None or row["enabled"] == 0:
        return
    if cursor is None or not isinstance(last_epoch["spec"], str) or not isinstance(last_epoch["timezone"], str):
        return
    found = rhythm(last_epoch["spec"], last_epoch["timezone"], dst_policy(last_epoch["policies"]))
    if isinstance(found, str):
        return
    after = cursor if bounds.start_at is None else max(cursor, bounds.start_at - 1)
    expected = found.after(after)
    if expected is not None and (bounds.end_at is None or expected <= bounds.end_at):
        text = f"it has no wake-up, but after its cursor ({iso(cursor)}) the next occurrence is {iso(expected)}"
        account.tell("wake-up", text, at=expected)
