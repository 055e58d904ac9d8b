"""The stored quiet hours, read for those who ask about a ledger."""

from __future__ import annotations

from typing import cast

import msgspec

from noonbell.errors import QuietHoursInvalidError
from noonbell.ports import ScheduleStore, Store
from noonbell.timing import QuietHours


async def quiet_hours(store: Store) -> dict[str | None, tuple[QuietHours | None, int]]:
    """Each policy by its id, with the instant since when it stands; one that cannot be read is None."""
    if not hasattr(store, "quiet_hours"):
        return {}  # a store of declared tasks alone
    found: dict[str | None, tuple[QuietHours | None, int]] = {}
    for policy in await cast("ScheduleStore", store).quiet_hours():
        try:
            found[policy.policy_id] = (QuietHours.from_json(msgspec.json.decode(policy.document)), policy.updated_at)
        except (QuietHoursInvalidError, msgspec.DecodeError, TypeError):
            found[policy.policy_id] = (None, policy.updated_at)
    return found
