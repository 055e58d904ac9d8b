"""The log of the service: one handler for everything, as text for people or as JSON for programs.

Lines of this package and of its libraries go through the same formatter, and through the filter that keeps known
secrets out of all of them.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import structlog

from noonbell.actions.secrets.logs import process_filter
from noonbell.config import Settings

_TALKATIVE: Final = ("asyncio", "uvicorn.error", "uvicorn.access", "aiohttp.access")


def configure(settings: Settings) -> None:
    """Send the log to stderr, in the format of the settings."""
    as_json = settings.log_format == "json"
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
        _flattened,
    ]
    renderer: Any = structlog.processors.JSONRenderer() if as_json else _console()
    last: list[Any] = [structlog.processors.format_exc_info, _for_programs] if as_json else [_for_people]
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(process_filter())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("noonbell").setLevel(settings.log_level.upper())
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)


def _console() -> Any:
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)


def _flattened(logger: object, method: str, event: Any) -> Any:
    """Move the facts of the library, which are under one name, to the top level, and drop empty ones."""
    del logger, method
    facts = event.pop("noonbell", None)
    if isinstance(facts, dict):
        event["event_name"] = facts.get("event", "")
        for name, value in facts.items():
            event.setdefault(name, value)
    record = event.get("_record")
    if record is not None and record.exc_text and not record.exc_info:
        event["exception"] = record.exc_text  # masked: the traceback itself would show what was masked
    return {name: value for name, value in event.items() if value is not None}


def _for_people(logger: object, method: str, event: Any) -> Any:
    """Drop facts that are in the text of the line: those of a request, and those that the text names."""
    del logger, method
    if event.get("logger") == "noonbell.api":
        for name in ("method", "path", "status"):
            event.pop(name, None)
    if event.pop("event_name", None) is not None:
        said = f" {event['event']}"
        for name in [name for name in event if f" {name}=" in said]:
            del event[name]
    return event


def _for_programs(logger: object, method: str, event: Any) -> Any:
    """Reduce the text of a library event to its name: its facts are fields of the same object."""
    del logger, method
    if name := event.pop("event_name", None):
        event["event"] = name
    return event
