"""The API as it describes itself: schemathesis finds no contradiction, and every operation says what it can answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from noonbell.api.app import PREFIX
from tests.api.conftest import Client
from tests.api.schema_run import look


@pytest.mark.exhaustive
async def test_schemathesis_finds_nothing(live: Client, tmp_path: Path) -> None:
    """A short look, the same each time; the long one is tests/faults/api_schema.py."""
    looked = await look(
        live, tmp_path, "--phases", "examples,fuzzing", "--max-examples", "1", "--generation-deterministic", named=True,
    )  # fmt: skip
    assert looked.code == 0, looked.report[-8_000:]
    tested = re.search(r"Tested: (\d+)", looked.report)
    assert tested is not None, looked.report
    assert int(tested[1]) > 50


async def described(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = (await client.anonymous.get(f"{PREFIX}/openapi.json")).json()
    return found


async def test_every_operation_is_told_of(inside: Client) -> None:
    document = await described(inside)
    assert len(document["paths"]) > 40
    for path, operations in document["paths"].items():
        if not path.startswith(PREFIX):
            continue
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation.get("summary"), where
            statuses = set(operation["responses"])
            if "{" in path:
                assert statuses & {"404", "409"}, where
            assert {status for status in statuses if status.startswith("2")}, where
            for status in statuses - {"200", "201", "202", "204", "304"}:
                assert "application/problem+json" in operation["responses"][status]["content"], (where, status)


async def test_what_is_sent_has_examples(inside: Client) -> None:
    document = await described(inside)
    schemas = document["components"]["schemas"]
    for name in (
        "ScheduleCreate",
        "QuietHoursRequest",
        "ChannelRequest",
        "RuleRequest",
        "MonitorRequest",
        "PreviewRequest",
    ):
        assert schemas[name]["examples"], name
        assert schemas[name]["additionalProperties"] is False, name
