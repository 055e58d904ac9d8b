"""The keys that sign the requests of a schedule: list, reveal, replace and retire them.

A key is shown only in the response to the form that reveals it, and not on any page that a link can open: it is for the
receiver of the requests alone. The label of a key on the page reveals nothing of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from fastapi.responses import Response

from noonbell.actions.signatures import SigningKey
from noonbell.api.paging import ScheduleInPath
from noonbell.core.instants import moment
from noonbell.errors import NoonbellError
from noonbell.schedules import Schedule
from noonbell.web.pages.refused import refused
from noonbell.web.rendering import segment
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, RequestContext

router = page_router()

OVERLAPS: Final = {
    "24": "a day",
    "72": "three days",
    "168": "a week",
    "720": "30 days",
    "0": "no time: it ends at once",
}
_USUAL: Final = "24"
_HOURS: Final = re.compile("[0-9]{1,4}", re.ASCII)


class Key(NamedTuple):
    """A key for the page; `value` is set only when it is revealed."""

    name: str
    since: datetime
    until: datetime | None
    value: str | None


@router.get("/schedules/{schedule_id}/signing-keys")
async def show(visitor: Changing, schedule_id: ScheduleInPath) -> Response:
    """List the keys. This creates none."""
    schedule = await visitor.schedules.get(schedule_id)
    return await _page(visitor, schedule)


@router.post("/schedules/{schedule_id}/signing-keys/show")
async def reveal(visitor: Changing, schedule_id: ScheduleInPath) -> Response:
    """Reveal the keys in use; the first is created here. It takes a POST, so that no link shows them."""
    schedule = await visitor.schedules.get(schedule_id)
    keys = await visitor.schedules.secrets.signing_keys(schedule_id, visitor.team)
    return await _page(visitor, schedule, keys=keys)


@router.post("/schedules/{schedule_id}/signing-keys/rotate")
async def rotate(visitor: Changing, schedule_id: ScheduleInPath) -> Response:
    """Add a new key; the previous one keeps signing beside it for a while."""
    schedule = await visitor.schedules.get(schedule_id)
    hours = visitor.form.text("overlap") or _USUAL
    if hours not in OVERLAPS or not _HOURS.fullmatch(hours):
        return await _page(visitor, schedule, 422, errors={"overlap": "must be one of those that are offered"})
    secrets = visitor.schedules.secrets
    try:
        keys = await secrets.rotate_signing_keys(schedule_id, visitor.team, overlap=timedelta(hours=int(hours)))
    except NoonbellError as error:
        return await _page(visitor, schedule, 422, errors=await refused(visitor, error, ("overlap",)))
    visitor.service.events.nudge()
    return await _page(visitor, schedule, keys=keys[:1], rest=keys[1:])


@router.post("/schedules/{schedule_id}/signing-keys/retire")
async def retire(visitor: Changing, schedule_id: ScheduleInPath) -> Response:
    """Delete all keys at once; the next signed request uses a new one."""
    await visitor.schedules.get(schedule_id)
    gone = await visitor.schedules.secrets.drop_signing_keys(schedule_id, visitor.team)
    visitor.service.events.nudge()
    message = (
        "The keys are retired; the next request is signed with a new one" if gone else "There were no keys to retire"
    )
    return visitor.go(f"/schedules/{segment(schedule_id)}/signing-keys", message, "good" if gone else "plain")


async def _page(
    visitor: RequestContext, schedule: Schedule, status: int = 200, *, keys: Sequence[SigningKey] | None = None,
    rest: Sequence[SigningKey] = (), **values: Any,
) -> Response:  # fmt: skip
    """Render the page; without `keys`, it lists the existing ones without values."""
    secrets = visitor.schedules.secrets
    made: Sequence[SigningKey] = ()
    if keys is None and secrets.usable:
        made = await secrets.made_signing_keys(schedule.schedule_id, visitor.team)
    shown = [_shown_key(key, seen=True) for key in keys or ()] + [_shown_key(key, seen=False) for key in (*rest, *made)]
    return visitor.page(
        "signing_keys.html", status, schedule_id=schedule.schedule_id, name=schedule.name, keys=shown,
        usable=secrets.usable, overlaps=list(OVERLAPS.items()), revealed=bool(keys),
        signs=schedule.action.get("kind") == "http" and schedule.action.get("sign") is not False,
        **({"errors": {}} | values),
    )  # fmt: skip


def _shown_key(key: SigningKey, *, seen: bool) -> Key:
    name = hashlib.sha256(f"noonbell signing key {key.key}".encode()).hexdigest()[:10]
    until = None if key.expires_at is None else moment(key.expires_at)
    return Key(name, moment(key.created_at), until, key.key if seen else None)
