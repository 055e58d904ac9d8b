"""Whatever the API can do can be done by clicking: each of its operations, and the page that does the same.

Whoever adds an operation adds the page, or says here why there is none.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from fastapi.routing import APIRoute, iter_route_contexts

from noonbell.api.app import PREFIX, create_app
from noonbell.bootstrap import build
from noonbell.config import Settings

# By method and path below the prefix: the routes of pages that do it together.
PAGES: Final[dict[str, tuple[str, ...]]] = {
    "GET /schedules": ("GET /schedules",),
    "POST /schedules": ("GET /schedules/new", "POST /schedules/new"),
    "GET /schedules/{schedule_id}": ("GET /schedules/{schedule_id}",),
    "PATCH /schedules/{schedule_id}": ("GET /schedules/{schedule_id}/edit", "POST /schedules/{schedule_id}/edit"),
    "DELETE /schedules/{schedule_id}": ("POST /schedules/{schedule_id}/delete",),
    "GET /schedules/{schedule_id}/preview": ("GET /schedules/{schedule_id}",),
    "POST /schedules/{schedule_id}/pause": ("POST /schedules/{schedule_id}/pause",),
    "POST /schedules/{schedule_id}/resume": ("POST /schedules/{schedule_id}/resume",),
    "POST /schedules/{schedule_id}/trigger": ("POST /schedules/{schedule_id}/run",),
    "POST /bulk/schedules": ("POST /plan", "POST /plan/apply"),
    "PATCH /bulk/schedules": ("POST /schedules/bulk",),
    "GET /runs": ("GET /runs",),
    "GET /runs/{run_id}": ("GET /runs/{run_id}",),
    "GET /schedules/{schedule_id}/runs": ("GET /runs",),
    "GET /schedules/{schedule_id}/occurrences": ("GET /schedules/{schedule_id}",),
    "GET /schedules/{schedule_id}/statistics": ("GET /schedules/{schedule_id}",),
    "GET /schedules/{schedule_id}/why": ("GET /schedules/{schedule_id}/why",),
    "GET /schedules/{schedule_id}/verify": ("GET /schedules/{schedule_id}/verify",),
    "GET /verify": ("GET /verify",),
    "POST /preview": ("POST /schedules/preview",),
    "POST /plan": ("GET /plan", "POST /plan"),
    "POST /apply": ("POST /plan/apply",),
    "GET /quiet-hours": ("GET /quiet-hours",),
    "POST /quiet-hours": ("GET /quiet-hours/new", "POST /quiet-hours/new"),
    "GET /quiet-hours/{policy_id}": ("GET /quiet-hours/{policy_id}",),
    "PATCH /quiet-hours/{policy_id}": ("POST /quiet-hours/{policy_id}",),
    "DELETE /quiet-hours/{policy_id}": ("POST /quiet-hours/{policy_id}/delete",),
    "GET /audit": ("GET /audit", "GET /audit/{number}"),
    "GET /dead-letters": ("GET /dead-letters",),
    "POST /dead-letters/revive": ("POST /dead-letters/revive",),
    "POST /dead-letters/drop": ("POST /dead-letters/drop",),
    "GET /events": ("GET /events",),
    "GET /secrets": ("GET /secrets",),
    "PUT /secrets/{name}": ("POST /secrets",),
    "DELETE /secrets/{name}": ("POST /secrets/{name}/delete",),
    "POST /master-key/rotation": ("POST /settings/rotate-master-key",),
    "GET /schedules/{schedule_id}/signing-keys": (
        "GET /schedules/{schedule_id}/signing-keys", "POST /schedules/{schedule_id}/signing-keys/show",
    ),
    "POST /schedules/{schedule_id}/signing-keys": ("POST /schedules/{schedule_id}/signing-keys/rotate",),
    "DELETE /schedules/{schedule_id}/signing-keys": ("POST /schedules/{schedule_id}/signing-keys/retire",),
    "GET /channels": ("GET /channels",),
    "POST /channels": ("GET /channels/new", "POST /channels/new"),
    "GET /channels/{channel_id}": ("GET /channels/{channel_id}",),
    "PATCH /channels/{channel_id}": ("POST /channels/{channel_id}", "POST /channels/{channel_id}/turn"),
    "DELETE /channels/{channel_id}": ("POST /channels/{channel_id}/delete",),
    "POST /channels/{channel_id}/test": ("POST /channels/{channel_id}/test",),
    "GET /channels/{channel_id}/signing-keys": ("POST /channels/{channel_id}/signing-keys",),
    "GET /rules": ("GET /channels",),
    "POST /rules": ("GET /rules/new", "POST /rules/new"),
    "GET /rules/{rule_id}": ("GET /rules/{rule_id}",),
    "PATCH /rules/{rule_id}": ("POST /rules/{rule_id}", "POST /rules/{rule_id}/turn"),
    "DELETE /rules/{rule_id}": ("POST /rules/{rule_id}/delete",),
    "GET /monitors": ("GET /monitors",),
    "POST /monitors": ("GET /monitors/new", "POST /monitors/new"),
    "GET /monitors/{monitor_id}": ("GET /monitors/{monitor_id}",),
    "PATCH /monitors/{monitor_id}": ("GET /monitors/{monitor_id}/edit", "POST /monitors/{monitor_id}/edit"),
    "DELETE /monitors/{monitor_id}": ("POST /monitors/{monitor_id}/delete",),
    "POST /monitors/{monitor_id}/pause": ("POST /monitors/{monitor_id}/pause",),
    "POST /monitors/{monitor_id}/resume": ("POST /monitors/{monitor_id}/resume",),
    "POST /monitors/{monitor_id}/renew-token": ("POST /monitors/{monitor_id}/renew-token",),
    "GET /monitors/{monitor_id}/pings": ("GET /monitors/{monitor_id}",),
    "GET /monitors/{monitor_id}/flips": ("GET /monitors/{monitor_id}",),
    "GET /keys": ("GET /keys",),
    "POST /keys": ("POST /keys",),
    "GET /keys/{key_id}": ("GET /keys",),
    "DELETE /keys/{key_id}": ("POST /keys/{key_id}/revoke", "POST /keys/take-back"),
    "GET /teams": ("GET /team",),
    "POST /teams": ("POST /team/teams",),
    "GET /instances": ("GET /instances",),
}  # fmt: skip

# What has no page, and why.
WITHOUT: Final = {
    "GET /caller": "who is logged in stands at the foot of the menu of every page",
    "GET /openapi.json": "for programs",
}


@cache
def routes() -> tuple[set[str], set[str]]:
    """The operations of the API, and the routes of pages."""
    app = create_app(build(Settings(store="memory://"), environ={}))
    operations, pages = set(), set()
    for context in iter_route_contexts(app.routes):
        path = context.path or ""
        for method in (context.methods or set()) - {"HEAD"}:
            if path.startswith(PREFIX):
                operations.add(f"{method} {path.removeprefix(PREFIX)}")
            elif isinstance(context.original_route, APIRoute):
                pages.add(f"{method} {path}")
    return operations, pages


def test_every_operation_of_the_api_has_its_page_or_a_reason() -> None:
    operations, _ = routes()
    assert len(operations) > 50
    assert operations == PAGES.keys() | WITHOUT.keys()
    assert not PAGES.keys() & WITHOUT.keys()


def test_the_pages_are_there() -> None:
    _, pages = routes()
    assert {page for listed in PAGES.values() for page in listed} - pages == set()
