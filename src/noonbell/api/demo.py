"""The data of `noonbell serve --demo`: a few schedules, and the target that their requests reach.

The target is this service itself. It stores and returns no data: /demo/bell succeeds, and /demo/moody responds with an
error to about one run in four, so that the demo has retries and failures. Egress lets schedules reach 127.0.0.1 at the
port of the service and at no other; this includes any path and all teams, because egress checks hosts and ports. It is
allowed only while the service listens on loopback: otherwise the demo's requests are refused unless
`--allow 127.0.0.1:PORT` is given.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from noonbell.bootstrap import Service
from noonbell.errors import NoonbellError, ScheduleExistsError, ScheduleNotFoundError
from noonbell.language import schedule_fields
from noonbell.schedules import Schedules

TEAM: Final = "default"
KEY_NAME: Final = "demo"
_KEY_LASTS: Final = timedelta(hours=24)
_TAG: Final = "demo"

router = APIRouter(include_in_schema=False)


@router.post("/demo/bell")
@router.get("/demo/bell")
async def bell() -> dict[str, str]:
    return {"said": "dong"}


@router.post("/demo/moody")
async def moody(request: Request) -> JSONResponse:
    """Fail by the id of the run, for about one in four; a retry of the same run mostly succeeds."""
    run = request.headers.get("Idempotency-Key", "") + request.headers.get("Noonbell-Attempt", "")
    mood = hashlib.sha256(run.encode()).digest()[0]
    if mood < 96:
        return JSONResponse({"said": "not now"}, 503)
    return JSONResponse({"said": "well, all right"})


# In English, as users write them; the API shows the interpretation.
_TEXTS: Final = {
    "demo-every-minute": "every minute",
    "demo-every-10-seconds": "every 10 seconds",
    "demo-moody": "every 20 seconds",
    "demo-workdays": "every weekday at 9am in Kyiv",
}


def demo_schedules(port: int, now: datetime) -> list[dict[str, Any]]:
    """Return the fields of the demo's schedules."""
    target = f"http://127.0.0.1:{port}/demo"
    made: list[dict[str, Any]] = []
    for schedule_id, text in _TEXTS.items():
        action: dict[str, Any] = {"kind": "http", "url": f"{target}/bell", "body": {"json": {"from": "noonbell"}}}
        schedule = {"schedule_id": schedule_id, "name": f"Demo: {text}", "action": action, "tags": [_TAG]}
        made.append(schedule | dict(schedule_fields(text, now=now)))
    moody = next(one for one in made if one["schedule_id"] == "demo-moody")
    moody["name"] = f"{moody['name']}, a moody target"
    moody["action"]["url"] = f"{target}/moody"
    moody["retry"] = {"attempts": 2, "delay_seconds": 3}
    return made


def _demo_command(echo: str, now: datetime) -> dict[str, Any]:
    """Return a schedule that starts a program, which the demo allows."""
    text = "every 30 minutes"
    made = {"schedule_id": "demo-command", "name": f"Demo: {text}, a command", "tags": [_TAG]}
    return made | {"action": {"kind": "command", "argv": [echo, "dong"]}} | dict(schedule_fields(text, now=now))


async def ensure_demo(service: Service) -> None:
    """Create missing schedules; a deleted one stays deleted, and changes are kept."""
    schedules = service.schedules.acting("demo", TEAM)
    wanted_schedules = demo_schedules(service.settings.port, _now(service))
    if (echo := service.settings.demo_command) is not None:
        wanted_schedules.append(_demo_command(echo, _now(service)))
    for wanted in wanted_schedules:
        try:
            await _ensure(schedules, wanted)
        except ScheduleExistsError:
            continue  # its id was used before: a user has deleted the schedule


async def _ensure(schedules: Schedules, wanted: dict[str, Any]) -> None:
    try:
        found = await schedules.get(wanted["schedule_id"])
    except ScheduleNotFoundError:
        await schedules.create(**wanted)
        return
    # the port of the service may be another one today
    if found.action.get("url") != wanted["action"].get("url") and "/demo/" in str(found.action.get("url")):
        await schedules.update(wanted["schedule_id"], action=wanted["action"])


async def demo_key(service: Service) -> str:
    """Create a key that is valid for a day, and revoke the one of the last start, which an old terminal may show."""
    access = service.access.acting("demo")
    after = ""
    while page := await access.list_keys(TEAM, after=after):
        for key in page:
            if key.name == KEY_NAME and key.created_by == "demo":
                try:
                    await access.revoke_key(key.key_id)
                except NoonbellError:
                    continue  # already revoked
        after = page[-1].key_id
    _, key_text = await access.create_key(TEAM, ["admin"], name=KEY_NAME, expires_at=_now(service) + _KEY_LASTS)
    return key_text


def _now(service: Service) -> datetime:
    return datetime.fromtimestamp(service.clock.now() / 1_000_000, UTC)
