"""A browser without a screen: an HTTP client that is logged in, and what pages are looked at with."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import argon2
import httpx2
import pytest

from noonbell.access.passwords import Passwords
from noonbell.api.app import create_app
from noonbell.bootstrap import Service, build
from tests.api.conftest import settings_for
from tests.patience import PATIENCE_SECONDS

PASSWORD = "correct horse battery"  # noqa: S105 - of the tests alone
NIGHT = {"from": "00:00", "to": "24:00", "timezone": "UTC", "weekdays": [0, 1, 2, 3, 4, 5, 6]}
ACTION: dict[str, Any] = {"kind": "http", "method": "POST", "url": "http://127.0.0.1:9/hook"}


class Browser:
    """Somebody who is logged in. `post` sends the form of a page with the session's token."""

    def __init__(self, service: Service, client: httpx2.AsyncClient) -> None:
        self.service = service
        self.client = client
        self.csrf = ""

    async def log_in(self, name: str) -> None:
        page = (await self.client.get("/login")).text
        form = {"csrf": token(page), "name": name, "password": PASSWORD}
        answer = await self.client.post("/login", data=form)
        assert answer.status_code == 303, answer.text
        self.csrf = token((await self.client.get("/plan")).text)  # any page has it; this one asks the least

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.client.get(path, headers=headers)

    async def read(self, path: str) -> str:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def part(self, path: str) -> str:
        """As a script asks."""
        answer = await self.client.get(path, headers={"HX-Request": "true"})
        assert answer.status_code == 200, answer.text
        return answer.text

    async def post(self, path: str, *, script: bool = False, **fields: Any) -> httpx2.Response:
        headers = {"HX-Request": "true"} if script else {}
        return await self.client.post(path, data={"csrf": self.csrf, **fields}, headers=headers)

    async def done(self, path: str, **fields: Any) -> str:
        """Post, follow, and return the page that says what was done."""
        answer = await self.post(path, **fields)
        assert answer.status_code == 303, answer.text
        return await self.read(answer.headers["location"])


def token(page: str) -> str:
    found: list[str] = re.findall(r'name="csrf" (?:value|content)="([^"]+)"', page)
    return found[0]


class Parsed(HTMLParser):
    """What a browser would make of a page, as far as tests ask: elements, and handlers that would run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture
async def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Browser]:
    """The application without a server, and an admin who is logged in."""
    quick = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(Passwords, "_hasher", lambda self: quick)
    service = build(settings_for(tmp_path))
    await service.start()
    transport = httpx2.ASGITransport(app=create_app(service))
    async with httpx2.AsyncClient(base_url="http://service", transport=transport, timeout=PATIENCE_SECONDS) as client:
        made = Browser(service, client)
        await service.access.create_admin("ann", PASSWORD)
        await made.log_in("ann")
        yield made
    await service.stop(10)
