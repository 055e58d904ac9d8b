"""Whether the service says that it lives and is ready."""

from __future__ import annotations

from tests.api.conftest import Client


async def test_a_running_service_lives_and_is_ready(live: Client) -> None:
    assert (await live.anonymous.get("/healthz")).json() == {"status": "ok"}
    answer = await live.anonymous.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"ready": True, "store": "ok", "engine": "running", "stopping": False}


async def test_a_stopping_service_lives_and_is_not_ready(inside: Client) -> None:
    inside.service.stopping.set()
    assert (await inside.anonymous.get("/healthz")).status_code == 200
    answer = await inside.anonymous.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["stopping"] is True


async def test_without_an_engine_it_is_not_ready(inside: Client) -> None:
    await inside.service.schedules.stop()
    answer = await inside.anonymous.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["engine"] == "stopped"


async def test_without_its_database_it_is_not_ready(inside: Client) -> None:
    inside.service.store.kill()
    answer = await inside.anonymous.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["store"] == "failing"
