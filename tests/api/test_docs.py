"""The examples of docs/api.md are run, in order, and answered as they say."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from noonbell.api.app import PREFIX
from tests.api.conftest import Client

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^```sh\n(.*?)^```\n(?:\n```json\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
ANYTHING = "…"


def holds(said: Any, found: Any) -> bool:
    """Whether an answer is as the page says; the page may leave fields out, and write … for a value."""
    if said == ANYTHING:
        return True
    if isinstance(said, dict):
        return isinstance(found, dict) and all(key in found and holds(said[key], found[key]) for key in said)
    if isinstance(said, list):
        return (
            isinstance(found, list)
            and len(said) == len(found)
            and all(holds(one, other) for one, other in zip(said, found, strict=True))
        )
    return bool(said == found)


async def test_the_examples_do_what_the_page_says(live: Client) -> None:
    assert shutil.which("curl"), "the examples are written for curl"
    environment = {
        "PATH": os.environ["PATH"],
        "NOONBELL_URL": live.base_url,
        "NOONBELL_API_KEY": live.keys["default/admin"],
    }
    examples = EXAMPLE.findall(PAGE)
    assert len(examples) > 10
    for script, answer in examples:
        process = await asyncio.create_subprocess_exec(
            "bash", "-eu", "-o", "pipefail", "-c", script, env=environment, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, (script, said.decode())
        if answer:
            found = json.loads(said)
            assert holds(json.loads(answer), found), (script, found)


async def test_every_call_stands_on_the_page(inside: Client) -> None:
    """The table of calls: each address is there, and none that does not exist."""
    document = (await inside.anonymous.get(f"{PREFIX}/openapi.json")).json()
    there = {re.sub(r"{\w+}", "{}", path.removeprefix(PREFIX)) for path in document["paths"] if path.startswith(PREFIX)}
    table = PAGE.partition("## All calls")[2]
    told = {
        re.sub(r"{\w+}", "{}", path)
        for line in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for path in re.findall(r"/[a-z-]+(?:/(?:[a-z-]+|{\w+}))*", line)
    }
    assert there - told == set()
    assert told - there == set()
