"""Who an address is: what a proxy says counts only where the proxy is named in `trusted_proxies`.

The service is a process here, because it is the server of that process that looks at the header. A limit of one request
in ten seconds makes the address visible: who has used it up is turned away.
"""

from __future__ import annotations

import json
from pathlib import Path

import httpx2

from tests.patience import PATIENCE_SECONDS
from tests.service.conftest import NO_KEEP_ALIVE, StreamInFlight, served

# so few that the bucket of an address holds a single request
LIMIT = {"NOONBELL_ADDRESS_REQUESTS_PER_MINUTE": "6", "NOONBELL_LOG_FORMAT": "json"}


def asked_as(service: StreamInFlight, *addresses: str | None) -> list[int]:
    """The answers to requests that each name an address as theirs."""
    with httpx2.Client(base_url=service.address, timeout=PATIENCE_SECONDS, limits=NO_KEEP_ALIVE) as client:
        return [
            client.get("/api/v1/caller", headers={} if address is None else {"X-Forwarded-For": address}).status_code
            for address in addresses
        ]


def test_without_a_trusted_proxy_nobody_can_choose_his_address(tmp_path: Path) -> None:
    with served(tmp_path, **LIMIT) as service:
        assert asked_as(service, "203.0.113.1", "203.0.113.2", None) == [401, 429, 429]
        assert service.stop() == 0


def test_a_proxy_that_is_not_the_one_that_asks_is_not_believed(tmp_path: Path) -> None:
    with served(tmp_path, NOONBELL_TRUSTED_PROXIES="192.0.2.7,10.0.0.0/8", **LIMIT) as service:
        assert asked_as(service, "203.0.113.1", "203.0.113.2") == [401, 429]
        assert service.stop() == 0


def test_behind_a_trusted_proxy_everybody_has_an_address_of_his_own(tmp_path: Path) -> None:
    with served(tmp_path, NOONBELL_TRUSTED_PROXIES="127.0.0.1", **LIMIT) as service:
        assert asked_as(service, "203.0.113.1", "203.0.113.2", "203.0.113.1") == [401, 401, 429]
        # what somebody puts before the proxy's own word is not believed: the last untrusted address counts
        assert asked_as(service, "198.51.100.9, 203.0.113.2", "198.51.100.9, 203.0.113.3") == [429, 401]
        assert service.stop() == 0
        lines = [json.loads(line) for line in service.lines]
    assert [line["status"] for line in lines if line.get("path") == "/api/v1/caller"] == [401, 401, 429, 429, 401]
