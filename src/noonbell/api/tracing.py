"""Traces, if they are enabled: one span for each request, by OpenTelemetry.

Without `opentelemetry-api`, nothing is recorded, and without a configured SDK, spans are discarded at almost no cost. A
span contains the same facts as the log: the route, never a query, a body or a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from noonbell import __version__

try:
    from opentelemetry import propagate, trace
except ModuleNotFoundError:  # an extra
    _tracer: Any = None
else:
    _tracer = trace.get_tracer("noonbell", __version__)


def request_span(method: str, headers: Mapping[str, str]) -> AbstractContextManager[Any]:
    """Open a span around a request, within the caller's trace if it sends one; yield None without tracing."""
    if _tracer is None:
        return nullcontext()
    span: AbstractContextManager[Any] = _tracer.start_as_current_span(
        method, context=propagate.extract(dict(headers)), kind=trace.SpanKind.SERVER, record_exception=False
    )
    return span


def record_outcome(span: Any, method: str, route: str, status: int) -> None:
    """Record the outcome of the request in its span."""
    if span is None or not span.is_recording():
        return
    span.update_name(f"{method} {route}")
    span.set_attribute("http.request.method", method)
    span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(trace.Status(trace.StatusCode.ERROR))
