"""The metrics of a service, in the format of Prometheus.

The counters of the engine and the store are read at each scrape; only requests are counted here, so metrics cost the
fire path nothing. The counters of the engine start at zero when it restarts, as Prometheus expects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from noonbell import __version__
from noonbell.bootstrap import Service
from noonbell.store.timed import BOUNDS

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_COUNTED: Final = {
    "polls": "Polls for due schedules",
    "looked": "Rows read by polls",
    "started": "Attempts that have begun",
    "succeeded": "Attempts that have succeeded",
    "failed": "Attempts that have failed",
    "stale": "Ends rejected by the fence: another engine had taken the run over",
    "store_errors": "Polls that failed because of the store",
    "poll_gaps": "Stretches without a poll of the lane that were longer than the grace",
    "poll_gap_seconds": "Seconds without a poll of the lane, in stretches longer than the grace",
}
_TIMELINE_COUNTED: Final = {
    "popped": "Members that the Redis timeline has brought up",
    "repaired": "Schedules that were overdue, and that the database found without the Redis timeline",
    "dropped": "Members of the Redis timeline that were no ids, or no active schedules",
    "built": "How often the Redis timeline was rebuilt",
    "errors": "Calls of the Redis timeline that failed",
}


class Measures:
    """The metrics of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = CollectorRegistry()
        self._collector = _ServiceCollector(service)
        self._registry.register(self._collector)
        self._requests = Counter(
            "noonbell_http_requests", "Requests, by route", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "noonbell_http_request_seconds", "How long requests took", ["route"], registry=self._registry
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    async def text(self) -> bytes:
        await self._collector.refresh()
        return generate_latest(self._registry)


class _ServiceCollector(Collector):
    """The metrics that are read from the service at each scrape."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._backlog: Mapping[str, int] | None = None

    async def refresh(self) -> None:
        """Read the counts that only the database has."""
        self._backlog = await self._service.backlog()

    def collect(self) -> Iterable[Metric]:
        service = self._service
        yield _gauge("noonbell_info", "The version that runs", 1, version=__version__)
        yield _gauge("noonbell_lane_held", "Whether an engine of the lane runs here", int(service.schedules.running))
        yield _counter(
            "noonbell_lease_losses", "How often this engine was taken for dead by another", service.schedules.lanes_lost
        )
        yield from self._of_backlog()
        summary = service.schedules.metrics
        if summary is not None:
            yield from _of_engine(summary)
        yield from _of_store(service)
        if service.schedules.timeline is not None:
            yield from _of_timeline(service.schedules.timeline)

    def _of_backlog(self) -> Iterator[Metric]:
        if self._backlog is None:
            return
        yield _gauge("noonbell_due", "Schedules that are due and not decided yet", self._backlog["due"])
        live = GaugeMetricFamily("noonbell_live_runs", "Runs that have not ended, of all lanes", labels=["state"])
        for state in ("queued", "running", "waiting"):
            live.add_metric([state], self._backlog.get(state, 0))
        yield live
        oldest = self._backlog["outbox_oldest_us"] / 1_000_000
        yield _gauge("noonbell_outbox_messages", "Messages and notices to be delivered", self._backlog["outbox"])
        yield _gauge("noonbell_outbox_oldest_seconds", "The age of the oldest of them", oldest)
        yield _gauge("noonbell_dead_letters", "Messages that are kept as dead letters", self._backlog["dead_letters"])


def _of_engine(summary: Mapping[str, Any]) -> Iterator[Metric]:
    deliveries = CounterMetricFamily("noonbell_deliveries", "Tries to deliver messages, by result", labels=["result"])
    for result, count in summary["deliveries"].items():
        deliveries.add_metric([result], count)
    yield deliveries
    for name, about in _COUNTED.items():
        yield _counter(f"noonbell_{name}", about, summary[name])
    measured = (
        ("start_lateness", "How late attempts began, the wait for a slot included"),
        ("recovery", "How late cut-off runs came back"),
        ("slot_wait", "How long attempts waited for an HTTP slot or a thread, of those that had to"),
    )
    for name, about in measured:
        histogram = summary[name]
        bounds = [float(bound) for bound in histogram["buckets"] if bound != "more"]
        total = (histogram["mean_seconds"] or 0.0) * histogram["count"]
        family = HistogramMetricFamily(f"noonbell_{name}_seconds", about)
        family.add_metric([], _cumulative(bounds, list(histogram["buckets"].values())), total)
        yield family


def _of_store(service: Service) -> Iterator[Metric]:
    seconds = HistogramMetricFamily("noonbell_store_seconds", "How long the store took, by verb", labels=["verb"])
    failed = CounterMetricFamily("noonbell_store_failures", "Verbs of the store that failed", labels=["verb"])
    for verb, times in sorted(service.times.verbs.items()):
        seconds.add_metric([verb], _cumulative(BOUNDS, times.buckets), times.total_seconds)
        failed.add_metric([verb], times.errors)
    yield seconds
    yield failed


def _of_timeline(counted: Mapping[str, int]) -> Iterator[Metric]:
    yield _gauge("noonbell_timeline_up", "Whether the Redis timeline has answered last", counted["up"])
    for name, about in _TIMELINE_COUNTED.items():
        yield _counter(f"noonbell_timeline_{name}", about, counted[name])


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Return cumulative buckets, as Prometheus has them: the count at or below each bound."""
    buckets, sum_so_far = [], 0
    for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
        sum_so_far += count
        buckets.append((bound, float(sum_so_far)))
    return buckets


def _gauge(name: str, about: str, value: float, **labels: str) -> Metric:
    family = GaugeMetricFamily(name, about, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _counter(name: str, about: str, value: float) -> Metric:
    family = CounterMetricFamily(name, about)
    family.add_metric([], value)
    return family
