"""`/metrics`: the numbers, and that they are the right ones."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from noonbell.api.app import PREFIX
from tests.api.conftest import Client


def numbers(text: str) -> dict[str, float]:
    """Every sample by its name and labels."""
    return {
        sample.name + str(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_numbers_of_a_service_that_has_done_something(inside: Client) -> None:
    await inside.read.get(f"{PREFIX}/schedules/nothing")
    service = inside.service
    answer = await inside.read.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = numbers(answer.text)
    assert found["noonbell_lane_held[]"] == 1
    assert found["noonbell_due[]"] == 0
    assert found["noonbell_live_runs[('state', 'running')]"] == 0
    assert found["noonbell_lease_losses_total[]"] == 0
    assert found["noonbell_polls_total[]"] >= 1
    assert found["noonbell_start_lateness_seconds_count[]"] == 0
    assert found["noonbell_slot_wait_seconds_count[]"] == 0
    assert found["noonbell_outbox_messages[]"] == found["noonbell_outbox_oldest_seconds[]"] == 0
    assert found["noonbell_dead_letters[]"] == 0
    assert [found[f"noonbell_deliveries_total[('result', '{one}')]"] for one in ("delivered", "failed", "dead")] == [
        0
    ] * 3
    verb = "[('verb', 'runs.claim')]"
    assert found[f"noonbell_store_seconds_count{verb}"] >= 1
    assert found[f"noonbell_store_seconds_sum{verb}"] > 0
    assert found[f"noonbell_store_failures_total{verb}"] == 0
    route = "[('method', 'GET'), ('route', '/api/v1/schedules/{schedule_id}'), ('status', '404')]"
    assert found[f"noonbell_http_requests_total{route}"] == 1
    await service.schedules.stop()
    assert numbers((await inside.read.get("/metrics")).text)["noonbell_lane_held[]"] == 0


async def test_histograms_are_cumulative_and_whole(inside: Client) -> None:
    metrics = inside.service.schedules._lane.engine
    assert metrics is not None
    for seconds in (0.001, 0.02, 0.02, 4000.0):
        metrics.metrics.start_lateness.observe(seconds, "x")
    found = numbers((await inside.read.get("/metrics")).text)
    buckets = {
        name: value for name, value in found.items() if name.startswith("noonbell_start_lateness_seconds_bucket")
    }
    values = list(buckets.values())
    assert values == sorted(values)
    assert found["noonbell_start_lateness_seconds_bucket[('le', '0.01')]"] == 1
    assert found["noonbell_start_lateness_seconds_bucket[('le', '0.05')]"] == 3
    assert found["noonbell_start_lateness_seconds_bucket[('le', '+Inf')]"] == 4
    assert found["noonbell_start_lateness_seconds_count[]"] == 4


async def test_names_of_schedules_are_not_among_the_labels(inside: Client) -> None:
    action = {"kind": "http", "url": "https://example.org/"}
    body = {"name": "payroll of the board", "type": "cron", "spec": "0 0 1 1 *", "action": action}
    assert (await inside.write.post(f"{PREFIX}/schedules", json=body)).status_code == 201
    assert "payroll" not in (await inside.read.get("/metrics")).text


async def test_a_store_that_fails_is_counted(inside: Client) -> None:
    inside.service.store.kill()
    answer = await inside.anonymous.get("/readyz")
    assert answer.status_code == 503
    times = inside.service.times.verbs["documents.find"]
    assert times.errors >= 1
