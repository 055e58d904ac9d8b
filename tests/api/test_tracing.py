"""Traces: a span for each request where somebody collects them, and nothing where nobody does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.trace import SpanKind

from noonbell.api import tracing
from noonbell.api.app import PREFIX
from tests.api.conftest import Client


class Span:
    """What a span of an SDK would keep."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.attributes: dict[str, Any] = {}
        self.status: Any = None

    def is_recording(self) -> bool:
        return True

    def update_name(self, name: str) -> None:
        self.name = name

    def set_attribute(self, name: str, value: Any) -> None:
        self.attributes[name] = value

    def set_status(self, status: Any) -> None:
        self.status = status


class Tracer:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.contexts: list[Any] = []

    @contextlib.contextmanager
    def start_as_current_span(self, name: str, *, context: Any, kind: SpanKind, **more: Any) -> Iterator[Span]:
        assert kind is SpanKind.SERVER
        span = Span(name)
        self.spans.append(span)
        self.contexts.append(context)
        yield span


async def test_a_request_is_a_span_that_names_the_route_and_nothing_else(
    inside: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = Tracer()
    monkeypatch.setattr(tracing, "_tracer", tracer)
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    await inside.read.get(f"{PREFIX}/schedules/payroll?limit=1", headers=headers)
    (span,) = tracer.spans
    assert span.name == f"GET {PREFIX}/schedules/{{schedule_id}}"
    assert span.attributes["http.response.status_code"] == 404
    assert span.status is None
    assert "payroll" not in repr(span.attributes)
    assert tracer.contexts[0], "the caller's trace goes on"


async def test_an_error_of_ours_marks_the_span(inside: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Tracer()
    monkeypatch.setattr(tracing, "_tracer", tracer)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(inside.service.access, "list_keys", broken)
    assert (await inside.admin.get(f"{PREFIX}/keys")).status_code == 500
    assert tracer.spans[0].status is not None


async def test_without_traces_everything_is_as_usual(inside: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_tracer", None)
    assert (await inside.read.get(f"{PREFIX}/caller")).status_code == 200
