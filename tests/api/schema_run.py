"""schemathesis against a running service: what it is given to work on, and how it is run."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.api.conftest import Client

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")
HOOKS = "tests.api.schema_hooks"
ACTION = {"kind": "callback", "name": "report"}
NIGHT = {"weekdays": [1, 2, 3, 4, 5], "from": "22:00", "to": "06:00", "timezone": "Europe/Kyiv"}
THERE: list[tuple[str, dict[str, Any]]] = [
    ("/quiet-hours", {"policy_id": "nights", "name": "nights", "windows": [NIGHT]}),
    ("/schedules", {"schedule_id": "one", "type": "cron", "spec": "* * * * *", "action": ACTION}),
    ("/channels", {"channel_id": "ops", "name": "ops", "kind": "webhook", "config": {"url": "https://127.0.0.1/x"}}),
    ("/rules", {"rule_id": "failures", "name": "failures", "on": ["failed"], "channels": ["ops"]}),
    ("/monitors", {"monitor_id": "backup", "name": "backup", "type": "interval", "spec": 3600}),
]


# So that more than a 404 is reached where nothing else says which ids there are; what is deleted is chosen at random.
# Where schemathesis goes from one call to the next by itself, this would lead it astray.
NAMED = """
[[operations]]
include-method = ["GET", "PATCH", "POST", "PUT"]
parameters = { "path.schedule_id" = "one", "path.policy_id" = "nights", "path.channel_id" = "ops", \
"path.rule_id" = "failures", "path.monitor_id" = "backup" }
"""


class Looked(NamedTuple):
    """How a run ended, and what it had to say."""

    code: int
    report: str


async def look(client: Client, folder: Path, *options: str, named: bool) -> Looked:
    """Run schemathesis with the key of an admin, on things that are there. It leaves its files in `folder`."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG.read_text(encoding="utf-8") + (NAMED if named else ""), encoding="utf-8")
    for path, body in THERE:
        answer = await client.write.post(f"/api/v1{path}", json=body)
        assert answer.status_code == 201, answer.text
    key = client.keys["default/admin"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run",
        f"{client.base_url}/api/v1/openapi.json", "--header", f"Authorization: Bearer {key}", "--no-color",
        "--warnings", "off", *options,
        cwd=folder, env={**os.environ, "SCHEMATHESIS_HOOKS": HOOKS, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    code = process.returncode
    return Looked(-1 if code is None else code, said.decode("utf-8", "replace"))
