"""The log of `serve` and `worker`: each fact once, tracebacks with it, secrets masked in both."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest

from noonbell.actions.secrets.logs import guard
from noonbell.actions.secrets.masking import Masker
from noonbell.config import Settings
from noonbell.server import service_logs

VALUE = "s3cr3t-value-of-a-test"
FACTS = {"event": "TaskRunFailed", "task": "a", "attempt": 3, "scheduled_for": "2026-03-04T12:00:00+00:00"}
TEXT = "TaskRunFailed task=a attempt=3 scheduled_for=2026-03-04T12:00:00+00:00"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("noonbell")
    before = list(root.handlers), root.level, own.level
    yield
    root.handlers[:], root.level, own.level = before


def logged(capsys: pytest.CaptureFixture[str], form: Literal["text", "json"], error: Exception | None = None) -> str:
    service_logs.configure(Settings(log_format=form))
    logging.getLogger("noonbell.periodic").warning("%s", TEXT, extra={"noonbell": FACTS}, exc_info=error)
    return capsys.readouterr().err


def raised(message: str) -> Exception:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


def test_people_read_each_fact_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = logged(capsys, "text")
    assert TEXT in line
    assert [line.count(f"{name}=") for name in ("task", "attempt", "scheduled_for")] == [1, 1, 1]
    assert "event_name" not in line


def test_programs_read_each_fact_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = logged(capsys, "json")
    assert json.loads(line) | FACTS == json.loads(line), "the facts are fields, and the event is its name"
    assert line.count("2026-03-04T12:00:00") == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_is_logged_without_secrets(
    capsys: pytest.CaptureFixture[str], form: Literal["text", "json"]
) -> None:
    class Known:
        maskers = (Masker([VALUE]),)

    assert "in raised" in logged(capsys, form, raised("plain"))
    known = Known()
    guard(known)
    line = logged(capsys, form, raised(f"the key {VALUE}"))
    assert "in raised" in line
    assert "the key ***" in line
    assert VALUE not in line
