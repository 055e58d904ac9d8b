"""Channels, rules, monitors, secrets and API keys of a service, as the records of the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec

from noonbell.access import ApiKey
from noonbell.actions.secrets.repository import Rotation
from noonbell.actions.secrets.secret_records import SecretFacts
from noonbell.actions.signatures import SigningKey
from noonbell.cli.backend.http import Client, escaped
from noonbell.core.instants import instant
from noonbell.errors import AccessNotFoundError, DeliveryError, NoonbellError
from noonbell.monitors import Monitor
from noonbell.monitors.monitor_records import FlipRecord, MonitorPage, Ping
from noonbell.notify.notice_records import Channel, ChannelPage, Rule, RulePage


class RemoteChannels:
    def __init__(self, client: Client, team: str) -> None:
        self._client = client
        self._team = team

    async def create(self, **fields: Any) -> Channel:
        return self._read(await self._client.call("POST", "/channels", _given(fields), once=True))

    async def list(self, *, team: str | None = None, cursor: str | None = None, limit: int = 100) -> ChannelPage:
        del team
        found = await self._client.get("/channels", cursor=cursor, limit=limit)
        return ChannelPage([self._read(one) for one in found["items"]], found["next_cursor"])

    async def delete(self, channel_id: str) -> None:
        await self._client.call("DELETE", f"/channels/{escaped(channel_id)}")

    async def test(self, channel_id: str) -> str:
        answer = await self._client.call("POST", f"/channels/{escaped(channel_id)}/test")
        if not answer["delivered"]:
            raise _worded(DeliveryError, str(answer["answer"]))
        return str(answer["answer"])

    async def signing_keys(self, channel_id: str) -> Sequence[str]:
        found = await self._client.get(f"/channels/{escaped(channel_id)}/signing-keys")
        return [str(one["key"]) for one in found["items"]]

    def _read(self, document: dict[str, Any]) -> Channel:
        return msgspec.convert({"team": self._team, **document}, Channel)


class RemoteRules:
    def __init__(self, client: Client, team: str) -> None:
        self._client = client
        self._team = team

    async def create(self, **fields: Any) -> Rule:
        return self._read(await self._client.call("POST", "/rules", _given(fields), once=True))

    async def list(self, *, team: str | None = None, cursor: str | None = None, limit: int = 100) -> RulePage:
        del team
        found = await self._client.get("/rules", cursor=cursor, limit=limit)
        return RulePage([self._read(one) for one in found["items"]], found["next_cursor"])

    async def delete(self, rule_id: str) -> None:
        await self._client.call("DELETE", f"/rules/{escaped(rule_id)}")

    def _read(self, document: dict[str, Any]) -> Rule:
        return msgspec.convert({"team": self._team, **document}, Rule)


class RemoteMonitors:
    def __init__(self, client: Client, team: str) -> None:
        self._client = client
        self._team = team

    async def create(self, **fields: Any) -> Monitor:
        return self._read(await self._client.call("POST", "/monitors", _given(fields), once=True))

    async def get(self, monitor_id: str) -> Monitor:
        return self._read(await self._client.get(_monitor(monitor_id)))

    async def list(self, *, team: str | None = None, cursor: str | None = None, limit: int = 100) -> MonitorPage:
        del team
        found = await self._client.get("/monitors", cursor=cursor, limit=limit)
        return MonitorPage([self._read(one) for one in found["items"]], found["next_cursor"])

    async def pings(self, monitor_id: str, *, limit: int = 50) -> Sequence[Ping]:
        found = await self._client.get(f"{_monitor(monitor_id)}/pings", limit=limit)
        return [msgspec.convert(_lasting(one, "ran_for"), Ping) for one in found["items"]]

    async def flips(self, monitor_id: str, *, limit: int = 200) -> Sequence[FlipRecord]:
        found = await self._client.get(f"{_monitor(monitor_id)}/flips", limit=limit)
        return [msgspec.convert(_lasting(one, "lasted"), FlipRecord) for one in found["items"]]

    async def update(self, monitor_id: str, **fields: Any) -> Monitor:
        return self._read(await self._client.call("PATCH", _monitor(monitor_id), fields))

    async def pause(self, monitor_id: str) -> Monitor:
        return self._read(await self._client.call("POST", f"{_monitor(monitor_id)}/pause"))

    async def resume(self, monitor_id: str) -> Monitor:
        return self._read(await self._client.call("POST", f"{_monitor(monitor_id)}/resume"))

    async def renew_token(self, monitor_id: str) -> Monitor:
        return self._read(await self._client.call("POST", f"{_monitor(monitor_id)}/renew-token"))

    async def delete(self, monitor_id: str) -> None:
        await self._client.call("DELETE", _monitor(monitor_id))

    async def ping(
        self, token: str, kind: str | None = None, *, body: bytes = b"", exit_code: int | None = None, run: str = ""
    ) -> Monitor:
        end = f"/{exit_code}" if exit_code is not None else "" if kind in (None, "success") else f"/{kind}"
        query = f"?{urlencode({'run': run})}" if run else ""
        await self._client.ping(f"/ping/{escaped(token)}{end}{query}", body)
        cursor: str | None = None
        while True:
            page = await self.list(cursor=cursor, limit=1_000)
            for one in page.items:
                if one.token == token:
                    return one
            cursor = page.next_cursor
            if cursor is None:
                raise NoonbellError("The ping was taken; its monitor is gone by now, or is not for this key to see")

    def _read(self, document: dict[str, Any]) -> Monitor:
        path = document["ping_path"] or ""  # none for a key that may only read
        token = str(path).rpartition("/")[2]
        return msgspec.convert({"team": self._team, "token": token, **document, "ping_path": path}, Monitor)


class RemoteSecrets:
    def __init__(self, client: Client, team: str) -> None:
        self._client = client
        self._team = team

    async def put(self, team: str, name: str, value: str) -> SecretFacts:
        del team
        return self._read(await self._client.call("PUT", f"/secrets/{escaped(name)}", {"value": value}))

    async def list(self, team: str) -> Sequence[SecretFacts]:
        del team
        return [self._read(one) for one in await self._client.every("/secrets")]

    async def delete(self, team: str, name: str) -> bool:
        del team
        if all(one.name != name for one in await self.list("")):
            return False
        await self._client.call("DELETE", f"/secrets/{escaped(name)}")
        return True

    async def rotate(self, *, page: int = 100, progress: Callable[[int], None] | None = None) -> Rotation:
        del page, progress
        done = await self._client.call("POST", "/master-key/rotation")
        # a server returns the number and not the names: they belong to all teams
        return Rotation(int(done["rewrapped"]), [("", "")] * int(done["unreadable"]))

    async def signing_keys(self, schedule_id: str, team: str) -> Sequence[SigningKey]:
        del team
        return _signing_keys(await self._client.get(f"/schedules/{escaped(schedule_id)}/signing-keys"))

    async def rotate_signing_keys(self, schedule_id: str, team: str, *, overlap: timedelta) -> Sequence[SigningKey]:
        del team
        path, given = f"/schedules/{escaped(schedule_id)}/signing-keys", {"overlap_seconds": overlap.total_seconds()}
        return _signing_keys(await self._client.call("POST", path, given))

    def _read(self, document: dict[str, Any]) -> SecretFacts:
        return SecretFacts(
            self._team, document["name"], document["version"], document["key_version"],
            _instant(document["created_at"]), _instant(document["updated_at"]),
        )  # fmt: skip


class RemoteKeys:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def create_key(
        self, team: str, scopes: Sequence[str], *, name: str, expires_at: datetime | None = None
    ) -> tuple[ApiKey, str]:
        given: dict[str, Any] = {"name": name, "scopes": list(scopes), "team": team}
        if expires_at is not None:
            given["expires_at"] = expires_at.isoformat()
        made = await self._client.call("POST", "/keys", given)
        return msgspec.convert(made, ApiKey), str(made["key"])

    async def list_keys(self, team: str | None, *, after: str = "", limit: int = 100) -> Sequence[ApiKey]:
        del team
        found = await self._client.get("/keys", cursor=after or None, limit=limit)
        return msgspec.convert(found["items"], list[ApiKey])

    async def revoke_key(self, key_id: str) -> list[str]:
        if not key_id.isalnum():
            raise AccessNotFoundError("API key", key_id)
        answer = await self._client.call("DELETE", f"/keys/{escaped(key_id)}")
        return list(answer["revoked"])


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields to send, without the team: it is that of the key."""
    return {key: value for key, value in fields.items() if key != "team"}


def _monitor(monitor_id: str) -> str:
    return f"/monitors/{escaped(monitor_id)}"


def _lasting(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the document with a duration in place of its seconds."""
    seconds = document.get(f"{name}_seconds")
    return {**document, name: None if seconds is None else timedelta(seconds=seconds)}


def _instant(text: str) -> int:
    return instant(datetime.fromisoformat(text))


def _signing_keys(document: dict[str, Any]) -> list[SigningKey]:
    return [
        SigningKey(one["key"], _instant(one["created_at"]), None if one["until"] is None else _instant(one["until"]))
        for one in document["items"]
    ]


def _worded(kind: type[NoonbellError], text: str) -> NoonbellError:
    error = kind.__new__(kind)
    NoonbellError.__init__(error, text)
    return error
