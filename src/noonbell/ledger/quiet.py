"""The stored quiet hours, read for those who ask about a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import cast

import msgspec

from noonbell.errors import QuietHoursInvalidError
from noonbell.ledger.reading import LATEST
from noonbell.ports import ScheduleStore, Store
from noonbell.timing import QuietHours, rules_hash


async def quiet_hours(store: Store) -> dict[str | None, tuple[QuietHours | None, int]]:
    """Each policy by its id, with the instant since when it stands.

    One that cannot be read is None, and so is one whose zone has other rules by now than it was judged by.
    """
    if not hasattr(store, "quiet_hours"):
        return {}  # a store of declared tasks alone
    found: dict[str | None, tuple[QuietHours | None, int]] = {}
    durable = cast("ScheduleStore", store)
    rules = await durable.zone_rules()
    for policy in await durable.quiet_hours():
        try:
            hours = QuietHours.from_json(msgspec.json.decode(policy.document))
            stands = all(_is_known(str(window.zone), window.zone, rules) for window in hours.windows)
            found[policy.policy_id] = (hours if stands else None, policy.updated_at)
        except (QuietHoursInvalidError, msgspec.DecodeError, TypeError):
            found[policy.policy_id] = (None, policy.updated_at)
    return found


def _is_known(timezone: str, zone: tzinfo, rules: Mapping[str, str]) -> bool:
    """Whether the rules of a zone here are those that quiet hours were judged by."""
    return timezone not in rules or rules[timezone].split(" ", 1)[0] == rules_hash(zone)


def quiet_for_good(hours: QuietHours, at: int) -> bool:
    """Whether the quiet that `at` lies in has no end."""
    until = hours.quiet_until(at)
    return until is not None and until > LATEST
