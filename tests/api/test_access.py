"""Every route by no key, a wrong one, an expired one, each scope, another team: driven by the application's own table.

A route that takes no caller and is not named in PUBLIC fails here, and so does one that takes two, and one whose path
names a thing that these tests cannot make.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import httpx2
import msgspec
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from noonbell.access import Scope
from noonbell.access.access_records import API_KEY, SCOPES, KeyBody
from noonbell.api.app import PREFIX, PUBLIC, create_app
from noonbell.api.callers import REQUIRES
from noonbell.bootstrap import build
from noonbell.config import Settings
from noonbell.core.records import DocumentWrite
from noonbell.ports import DocumentFilter
from noonbell.web.session import REQUIRES as OF_SESSIONS
from tests.api.conftest import Client


class Rule(NamedTuple):
    method: str
    path: str
    scopes: tuple[Scope, ...]


def required(dependant: Any) -> Iterator[Scope]:
    """The scopes that a route's dependencies ask for."""
    for one in dependant.dependencies:
        if one.call in REQUIRES:
            yield REQUIRES[one.call]
        yield from required(one)


def is_page(dependant: Any) -> bool:
    """Whether it asks for a session: tests/web goes through those."""
    return any(one.call in OF_SESSIONS or is_page(one) for one in dependant.dependencies)


def table(app: FastAPI) -> list[Rule]:
    """Every route of the application but the public ones and the pages."""
    rules: list[Rule] = []
    for context in iter_route_contexts(app.routes):
        path = context.path or ""
        if isinstance(context.original_route, APIRoute) and is_page(context.dependant):
            continue
        scopes = tuple(required(context.dependant)) if isinstance(context.original_route, APIRoute) else ()
        if path not in PUBLIC or scopes:
            rules.extend(Rule(method, path, scopes) for method in sorted(context.methods or {"GET"}))
    return rules


RULES = table(create_app(build(Settings(store="memory://"), environ={})))


def test_every_route_asks_for_exactly_one_scope_or_is_named_as_public() -> None:
    assert len(RULES) > 50
    assert [rule for rule in RULES if len(rule.scopes) != 1] == []


def test_a_route_without_a_rule_would_be_found() -> None:
    app = FastAPI()

    @app.get("/api/v1/forgotten")
    async def forgotten() -> None: ...

    assert Rule("GET", "/api/v1/forgotten", ()) in table(app)


def test_what_changes_something_asks_for_more_than_reading() -> None:
    # these say what would be, and change nothing
    harmless = {f"{PREFIX}/preview", f"{PREFIX}/plan"}
    strays = [rule for rule in RULES if rule.method != "GET" and rule.scopes == ("read",) and rule.path not in harmless]
    assert strays == []


# --- things of a team -------------------------------------------------------------------------------------------------


async def made(client: httpx2.AsyncClient) -> dict[str, str]:
    """One of each thing that can stand in a path, by the name it has there."""

    async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await client.post(f"{PREFIX}{path}", json=body)
        assert answer.status_code in (200, 201), answer.text
        told: dict[str, Any] = answer.json()
        return told

    action = {"kind": "http", "url": "https://example.org/"}
    schedule = await post(
        "/schedules", {"name": "one", "type": "cron", "spec": "0 0 1 1 *", "action": action, "enabled": True}
    )
    window = {"from": "22:00", "to": "06:00", "timezone": "UTC", "weekdays": [1]}
    quiet = await post("/quiet-hours", {"name": "night", "windows": [window]})
    channel = await post("/channels", {"name": "ops", "kind": "webhook", "config": {"url": "https://example.org/"}})
    rule = await post("/rules", {"name": "told", "on": ["failed"], "channels": [channel["channel_id"]]})
    monitor = await post("/monitors", {"name": "backup", "type": "interval", "spec": "3600"})
    key = await post("/keys", {"name": "mine", "scopes": ["read"]})
    run = (await client.post(f"{PREFIX}/schedules/{schedule['schedule_id']}/trigger")).json()
    await client.put(f"{PREFIX}/secrets/TOKEN", json={"value": "a very secret value"})
    return {
        "schedule_id": schedule["schedule_id"],
        "run_id": run["run_id"],
        "policy_id": quiet["policy_id"],
        "channel_id": channel["channel_id"],
        "rule_id": rule["rule_id"],
        "monitor_id": monitor["monitor_id"],
        "key_id": key["key_id"],
        "name": "TOKEN",
    }


def filled(path: str, things: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: things[found[1]], path)


async def status_of(client: httpx2.AsyncClient, method: str, path: str, **more: Any) -> int:
    """Only the head of the answer is waited for: an event stream has no end."""
    async with client.stream(method, path, **more) as answer:
        return answer.status_code


async def expired_key(client: Client) -> str:
    """A key whose time is over, without waiting for that."""
    later = datetime.now(UTC) + timedelta(days=1)
    record, key = await client.service.access.create_key("default", ["admin"], name="old", expires_at=later)
    documents = client.service.store
    (found,) = await documents.documents.find(DocumentFilter(API_KEY, [record.key_id]))
    body = msgspec.structs.replace(msgspec.json.decode(found.body, type=KeyBody), expires_at=1)
    write = DocumentWrite(API_KEY, found.id, found.team, msgspec.json.encode(body).decode())
    await documents.documents.write([write], found.updated_at)
    return key


async def test_no_key_and_wrong_keys_open_nothing(live: Client) -> None:
    things = dict.fromkeys(("schedule_id", "run_id", "policy_id", "channel_id", "rule_id", "monitor_id"), "x")
    things |= {"key_id": "x", "name": "X"}
    wrong = live.keys["default/admin"][:-4] + "AAAA"
    expired = await expired_key(live)
    gone, revoked = await live.service.access.create_key("default", ["admin"], name="gone")
    await live.service.access.revoke_key(gone.key_id)
    refused: list[dict[str, str]] = [{}] + [
        {"Authorization": value}
        for value in (f"Bearer {wrong}", f"Bearer {expired}", f"Bearer {revoked}", "Bearer x", "Basic eDp5", "nonsense")
    ]
    for rule in RULES:
        for headers in refused:
            status = await status_of(live.anonymous, rule.method, filled(rule.path, things), headers=headers)
            assert status == 401, (rule, headers)


async def test_each_scope_opens_what_it_is_for_and_no_more(live: Client) -> None:
    clients = {"read": live.read, "write": live.write, "admin": live.admin}
    things = dict.fromkeys(("schedule_id", "run_id", "policy_id", "channel_id", "rule_id", "monitor_id"), "nothing")
    things |= {"key_id": "nothing", "name": "NOTHING"}
    for rule in RULES:
        needed = SCOPES.index(rule.scopes[0])
        for held, scope in enumerate(SCOPES):
            status = await status_of(clients[scope], rule.method, filled(rule.path, things), json={})
            assert (status == 403) == (held < needed), (rule, scope, status)
            assert status != 401, (rule, scope)
            assert status < 500, (rule, scope, status)


async def test_what_belongs_to_another_team_is_not_there(live: Client) -> None:
    things = await made(live.admin)
    other = await live.with_key("other", "admin")
    foreign = [rule for rule in RULES if "{" in rule.path and not rule.path.endswith("/secrets/{name}")]
    assert len(foreign) > 25
    for rule in foreign:
        status = await status_of(other, rule.method, filled(rule.path, things), json={})
        assert status in (404, 422), (rule, status)
        if status == 422:  # the body is looked at first; then the answer must not depend on whether the thing exists
            nothing = dict.fromkeys(things, "nothing")
            assert await status_of(other, rule.method, filled(rule.path, nothing), json={}) == 422, rule
    for rule in foreign:
        if rule.method == "GET":
            status = await status_of(live.admin, rule.method, filled(rule.path, things))
            assert status != 404, (rule, status)


async def test_lists_show_nothing_of_another_team(live: Client) -> None:
    things = await made(live.admin)
    other = await live.with_key("other", "admin")
    lists = [rule.path for rule in RULES if rule.method == "GET" and "{" not in rule.path]
    # what is about the service as a whole, or about the caller
    whole = {f"{PREFIX}/instances", f"{PREFIX}/caller", f"{PREFIX}/events", f"{PREFIX}/verify", "/metrics"}
    looked = 0
    for path in lists:
        if path in whole or path == f"{PREFIX}/teams":
            continue
        answer = await other.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert not [one for one in things.values() if one in answer.text], (path, answer.text)
        looked += 1
    assert looked >= 9
    assert (await other.get(f"{PREFIX}/teams")).status_code == 403
    assert (await other.get("/metrics")).status_code == 403


async def test_another_teams_secret_is_neither_read_nor_replaced(live: Client) -> None:
    await made(live.admin)
    other = await live.with_key("other", "admin")
    assert (await other.delete(f"{PREFIX}/secrets/TOKEN")).status_code == 404
    assert (await other.put(f"{PREFIX}/secrets/TOKEN", json={"value": "quite another"})).status_code in (200, 201)
    assert await live.service.secrets.resolve("default", ["TOKEN"]) == {"TOKEN": "a very secret value"}


async def test_a_body_that_is_no_json_says_nothing_to_whoever_has_no_key(live: Client) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await live.anonymous.post(f"{PREFIX}/schedules", content=b"{", headers=headers)
    assert answer.status_code == 401
    answer = await live.write.post(f"{PREFIX}/schedules", content=b"{", headers=headers)
    assert answer.status_code == 400
    assert answer.json()["field"] == "body"


async def test_scopes_include_the_lesser_ones(inside: Client) -> None:
    told = (await inside.admin.get(f"{PREFIX}/caller")).json()
    assert told["scopes"] == ["admin", "read", "write"]
    assert told["manages_teams"] is True
    assert (await inside.write.get(f"{PREFIX}/caller")).json()["scopes"] == ["read", "write"]
