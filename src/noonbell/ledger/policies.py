"""The policies of an epoch and the stored quiet hours, read from their texts. Nothing in them is trusted.

Every schedule is read the same way. A declared task is a schedule with a fixed bundle of policies: its stored text
holds some of them, and `_DECLARED` the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from noonbell.core.records import DECLARED_OWNERS
from noonbell.cron import DstPolicy
from noonbell.errors import QuietHoursInvalidError
from noonbell.ledger.ledger_rows import LATEST, is_instant, stored_zone_rules
from noonbell.ports import Ledger
from noonbell.timing import QuietHours, rules_hash


class EpochPolicies(NamedTuple):
    """The policies of one epoch.

    `consumes`: any start answers for all that is due by then, retries have no limit, and the schedule may be dormant
    (disabled without a pause). Declared tasks have it.
    """

    kind: str = "cron"
    catch_up: str = "skip"
    cap: int = 10
    overlap: str = "coalesce"
    retry_vs_new: str = "finish"
    consumes: bool = False
    dst: DstPolicy = "literal"
    start_at: int | None = None
    end_at: int | None = None
    jitter_us: int = 0
    anchor_at: int | None = None  # the instant that an interval counted from when the epoch began
    quiet_hours_policy_id: str | None = None
    at_most_once: bool = False
    message_to: str | None = None  # the target, where the action is a message


_CREATED: Final = EpochPolicies()
_DECLARED: Final = EpochPolicies(catch_up="run_once", retry_vs_new="preempt", consumes=True)


def is_declared(managed_by: object) -> bool:
    """Return whether a program declares this owner's schedules as its tasks."""
    return isinstance(managed_by, str) and managed_by.startswith(DECLARED_OWNERS)


def policies_of(policies: object, managed_by: object) -> EpochPolicies:
    """Return the policies in the stored text of an epoch, over those that the owner's schedules have by default."""
    default = _DECLARED if is_declared(managed_by) else _CREATED
    return _read(policies, default) if isinstance(policies, str) else default


@lru_cache(maxsize=4_096)
def _read(policies: str, default: EpochPolicies) -> EpochPolicies:
    try:
        stored = msgspec.json.decode(policies)
    except msgspec.DecodeError:
        return default
    if not isinstance(stored, dict):
        return default
    definition = stored.get("definition")
    if isinstance(definition, dict):
        stored = {**definition, **stored}
    return EpochPolicies(
        kind=_text(stored.get("type"), default.kind),
        catch_up=_text(stored.get("catch_up"), default.catch_up),
        cap=_number(stored.get("cap"), default.cap),
        overlap=_text(stored.get("overlap"), default.overlap),
        retry_vs_new=_text(stored.get("retry_vs_new"), default.retry_vs_new),
        consumes=default.consumes,
        dst="once" if stored.get("dst") == "once" else "literal",
        start_at=_instant(stored.get("start_at")),
        end_at=_instant(stored.get("end_at")),
        jitter_us=_number(stored.get("jitter_us"), 0),
        anchor_at=_instant(stored.get("anchor_at")),
        quiet_hours_policy_id=_text(stored.get("quiet_hours_policy_id"), "") or None,
        at_most_once=stored.get("at_most_once") is True,
        message_to=_target(stored.get("action")),
    )


def _target(action: Any) -> str | None:
    sends = isinstance(action, dict) and action.get("kind") == "message"
    return _text(action.get("to"), "") if sends else None


def _text(value: Any, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise


def _number(value: Any, otherwise: int) -> int:
    return value if type(value) is int and value >= 0 else otherwise


def _instant(value: Any) -> int | None:
    return value if is_instant(value) else None


# --- quiet hours ------------------------------------------------------------------------------------------------------


class StoredQuietHours(NamedTuple):
    """A stored policy. `hours` is None if it cannot be read, or if the rules of a zone of it have changed since."""

    name: str
    hours: QuietHours | None
    updated_at: int

    def quiet_until(self, at: int) -> int | None:
        """Return the end of the quiet hours that `at` lies in; None if it lies in none, or they are not known."""
        return None if self.hours is None else self.hours.quiet_until(at)


async def stored_quiet_hours(store: Ledger) -> dict[str, StoredQuietHours]:
    """Return each stored policy by its id."""
    found: dict[str, StoredQuietHours] = {}
    policies = await store.schedules.quiet_hours()
    rules = await stored_zone_rules(store) if policies else {}
    for policy in policies:
        hours: QuietHours | None = None
        try:
            read = QuietHours.from_json(msgspec.json.decode(policy.document))
            hours = read if all(_rules_stand(window.zone, rules) for window in read.windows) else None
        except (QuietHoursInvalidError, msgspec.DecodeError, TypeError):
            hours = None
        found[policy.policy_id] = StoredQuietHours(policy.name, hours, policy.updated_at)
    return found


def _rules_stand(zone: tzinfo, rules: Mapping[str, str]) -> bool:
    """Return whether the rules of a zone here are those that its quiet hours were decided by."""
    name = str(zone)
    return name not in rules or rules[name].split(" ", 1)[0] == rules_hash(zone)


def quiet_for_good(hours: QuietHours, at: int) -> bool:
    """Return whether `at` lies in quiet hours that have no end."""
    until = hours.quiet_until(at)
    return until is not None and until > LATEST
