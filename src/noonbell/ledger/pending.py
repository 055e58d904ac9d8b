"""Answers about what is not over yet: an occurrence without a verdict, and the message of a run on its way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noonbell.core.ids import run_id
from noonbell.core.presence import GRACE_US
from noonbell.core.records import LiveRun, Run, Sending
from noonbell.ledger.explanation_text import Answer, Times, counted, length
from noonbell.ledger.ledger_rows import LATEST, is_instant
from noonbell.ledger.policies import EpochPolicies
from noonbell.ledger.reasons import Reasons
from noonbell.ledger.subject import Context, Subject

_CATCH_UP: Final = {
    "skip": "it will be missed, because its catch-up policy is skip",
    "run_once": "one run will answer for all that was missed, because its catch-up policy is run_once",
    "run_all_capped": "the oldest {cap} will be caught up one after the other, because its catch-up policy is "
    "run_all_capped",
}
_STATES: Final = {"running": "is in progress", "waiting": "waits for its retry", "queued": "is about to start"}


def undecided(context: Context, subject: Subject, reasons: Reasons, at: int, live: Sequence[LiveRun]) -> Answer:
    """Explain an occurrence after the cursor."""
    times, name, now = context.times, subject.name, context.now
    removed_at = subject.row["removed_at"]
    if removed_at is not None:
        text = f"{name} did not run for {times.full(at)}: it was {context.words.removed} at "
        return Answer(f"{text}{times.near(removed_at, at)}, before that was decided.", {"verdict": "removed"})
    starts_at = at + subject.delay(at)
    quiet = context.quiet.get(subject.policies.quiet_hours_policy_id or "")
    until = None if quiet is None else quiet.quiet_until(at)
    hours = "the quiet hours" if quiet is None else f'the quiet hours of the policy "{quiet.name}"'
    if starts_at > now:
        later = f", and starts {length(starts_at - at)} later by its jitter" if starts_at > at else ""
        text = f"{name} is due at {times.full(at)}, in {length(max(at - now, 0))}{later}."
        if until is not None:
            text += f" It will be skipped: it lies in {hours}."
        elif reasons.down is not None:
            run_once = subject.policies.catch_up == "run_once"
            by = "by then" if run_once else f"before {times.near(starts_at + GRACE_US, at)}"
            text += f" The scheduler is down{reasons.since(reasons.down, at)}; it has to be up {by}."
        return Answer(text, {"verdict": "due later", "quiet": until is not None})
    facts: dict[str, Any] = {
        "verdict": "not decided",
        "scheduler_down": reasons.down is not None,
        "quiet": until is not None,
    }
    if until is not None:
        text = f"{name} did not run for {times.full(at)}: it is skipped, since it lies in {hours}, which "
        if until > LATEST:
            text += "have no end. The ledger records it when they are changed."
        else:
            text += f"{'last' if until > now else 'lasted'} until {times.near(until, at)}. "
            text += "The ledger records it when they are over."
        return Answer(text, {**facts, "verdict": "skipped", "reason": "quiet hours"})
    because = _not_decided(context, subject, reasons, at, live)
    return Answer(f"{name} has not run for {times.full(at)} yet: {because}.", facts)


def _not_decided(context: Context, subject: Subject, reasons: Reasons, at: int, live: Sequence[LiveRun]) -> str:
    """Return why an occurrence that has come has no verdict, and what comes of it."""
    near, policies = context.times.near, subject.policies
    forecast = _forecast(context, policies, at, at + subject.delay(at) + GRACE_US)
    if subject.row["enabled"] == 0 and subject.epoch.enabled and policies.consumes:
        return f"the {context.words.noun} has not been scheduled again since the last start"
    if reasons.down is not None:
        return f"the scheduler is down{reasons.since(reasons.down, at)}. {forecast}"
    busy = next((run for run in live if _holds_up(run, policies)), None)
    if busy is not None:
        return _behind(busy, policies, context.times, at)
    last = reasons.started
    if last is None and not reasons.held:
        return f"no scheduler has been started yet. {forecast}"
    who = "" if last is None else f" (instance {last.instance}, up since {near(last.at, at)})"
    waited = length(context.now - at - subject.delay(at))
    text = f"it has been due for {waited}, and the scheduler{who} has not claimed it"
    return f"{text}. It is not lost: the next poll, or the next start, answers for it"


def _holds_up(run: LiveRun, policies: EpochPolicies) -> bool:
    """Return whether an occurrence has to wait for a run."""
    return policies.overlap != "allow" and (run.state != "waiting" or policies.retry_vs_new != "preempt")


def _behind(run: LiveRun, policies: EpochPolicies, times: Times, at: int) -> str:
    text = f"the run for {times.near(run.run_for, at)} {_STATES[run.state]}"
    if run.state == "running" and is_instant(run.attempt_at):
        text += f" since {times.near(run.attempt_at, at)} on instance {run.owner}"
    if policies.consumes and run.state != "running":
        return f"{text}. When it starts, it answers for all that is due by then"
    if policies.overlap == "skip":
        return f"{text}. What came while it executes is skipped"
    return f"{text}. One run for all that was due follows right after it"


def _forecast(context: Context, policies: EpochPolicies, at: int, late_at: int) -> str:
    """Return what the next start makes of an occurrence that no engine has polled for."""
    if policies.consumes:
        return "At the next start one run will answer for all that was due"
    what = _CATCH_UP.get(policies.catch_up, "it will be decided").format(cap=policies.cap)
    if context.now >= late_at or policies.catch_up == "run_once":
        return f"At the next start {what}"
    return f"If the next start comes before {context.times.near(late_at, at)}, it still runs; later {what}"


# --- the message of a run ---------------------------------------------------------------------------------------------


async def message_of(context: Context, subject: Subject, run: Run) -> Answer:
    """Explain where the message of a run is: in the outbox, delivered, or a dead letter. Other runs have no text."""
    if subject.policies.consumes:
        return Answer("", {})  # a declared task calls a function
    store, sid = context.store, subject.sid
    message_id = run_id(str(subject.row["schedule_id"]), run.kind, run.run_for)
    found = await store.outbox.sending(sid, message_id)
    if found is not None:
        return _in_the_outbox(found, context.times, run.run_for)
    after = 0
    while page := await store.outbox.dead_letters(sid, after, 500):
        for letter in page:
            if letter.message.message_id == message_id:
                died = context.times.near(letter.died_at, run.run_for)
                text = (
                    f" Its message to {letter.message.target} could not be delivered: it is a dead letter since "
                    f"{died}, after {counted(letter.attempts, 'attempt')} ({letter.error})."
                )
                return Answer(text, {"message": "dead letter"})
        after = page[-1].number
    if run.outcome != "succeeded" or subject.policies.message_to is None:
        return Answer("", {})
    text = f" Its message to {subject.policies.message_to} has left the outbox: it was delivered"
    return Answer(f"{text}, unless a person dropped it as a dead letter.", {"message": "left"})


def _in_the_outbox(found: Sending, times: Times, at: int) -> Answer:
    text = f" Its message to {found.message.target} is still in the outbox, since "
    text += times.near(found.message.created_at, at)
    if found.ahead:
        text += f", behind {counted(found.ahead, 'message')} of this schedule; the first of them"
    elif found.attempt or found.owner:
        text += ", and"
    if found.attempt:
        text += f" was tried {'once' if found.attempt == 1 else f'{found.attempt} times'} in vain"
        text += "" if found.error is None else f", the last time with: {found.error}"
    elif found.owner:
        text += " is being delivered now"
    else:
        text += " was not tried yet" if found.ahead else ", and was not tried yet"
        text += "" if found.error is None else f", because its target is away: {found.error}"
    if (found.attempt or found.error is not None) and found.owner is None:
        text += f"; the next try is at {times.near(found.wake_at, at)}"
    facts = {"ahead": found.ahead, "attempts": found.attempt, "error": found.error}
    return Answer(f"{text}.", {"message": "in the outbox", "outbox": facts})
