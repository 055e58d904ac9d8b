"""HTTP jobs against targets that mean harm, many at once: how much memory they can take, and how long they can hold on.

    python -m tests.faults.hostile_targets [--rounds N] [--at-once N] [--seconds S] [--uvloop] [--only NAME,NAME]

The jobs go the whole way: claimed by an engine, sent through egress, recorded with their secrets masked, settled on
SQLite. The targets (tests/actions/egress/hostile.py) are a process of their own, so what is measured here is the
engine's. Memory is how far the peak of the resident set rises above what it was before the first request; the page
cache of the store, which is bounded and fills with anything that is written, was filled by then. Time is from the start
of an attempt to its recorded end, held against the attempt's deadline.

Progress goes to standard error. The last line on standard output is one JSON object; the exit status is 1 where a bar
is missed, or where a target did not come to the end that it should.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import logging
import math
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from noonbell import Schedules
from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.egress.exchange import BODY_LIMIT
from noonbell.actions.http.slots import HttpLimits
from noonbell.actions.secrets.keys import new_ring
from noonbell.actions.secrets.secret_records import DEFAULT_TEAM
from noonbell.core.records import DocumentWrite
from tests.actions.egress.hostile import targets

MARGIN_BYTES = 30_000_000
PATIENCE_SECONDS = 600
NEVER: dict[str, Any] = {"type": "cron", "spec": "0 0 29 2 *"}
# How attempts end, unless the deadline comes first. What is not named here is a body that is cut, which is a success.
ENDS = {
    "closes": {"protocol"},
    "resets": {"protocol", "connect"},
    "noise": {"protocol", "too-large"},
    "chunk_extension": {"protocol", "too-large"},
    "chunk_size": {"protocol", "too-large"},
    "trailers": {"too-large"},
    "headers": {"too-large"},
    "long_header": {"too-large"},
    "long_name": {"too-large"},
    "long_reason": {"too-large"},
    "folded": {"too-large"},
    "preludes": {"too-large"},
    "slow_preludes": {"too-large"},
    "blank_lines": {"too-large", "protocol"},
    "packed_members": {"protocol"},
    "lists": {"assertion"},
    "deep": {"assertion"},
    "redirects": {"redirect"},
    "no_tls": {"tls"},
}


def jobs(ports: dict[str, int], seconds: float) -> dict[str, dict[str, Any]]:
    """The action for each target."""
    usual: dict[str, Any] = {
        "kind": "http",
        "timeout": {"connect": seconds / 2, "total": seconds},
        "follow_redirects": 5,
        "headers": {"X-Key": "${secrets.KEY_1}"},
    }
    here = f"http://127.0.0.1:{ports['plain']}"
    made = {name: {**usual, "url": f"{here}/{name}"} for name in targets()}
    for name in ("lists", "deep"):
        made[name]["assert"] = {"json_path": "$[0].state", "equals": "ready"}
    for name in ("endless", "bomb", "dripped_body", "binary"):
        url = f"https://127.0.0.1:{ports['tls']}/{name}"
        made[f"{name}_by_tls"] = {**usual, "url": url, "verify_tls": False}
    large = {"text": "x" * 900_000}
    made["unread"] = {**usual, "url": f"http://127.0.0.1:{ports['unread']}/", "body": large}
    made["no_tls"] = {**usual, "url": f"https://127.0.0.1:{ports['no_tls']}/"}
    made["silent_tls"] = {**usual, "url": f"https://127.0.0.1:{ports['unread']}/"}
    made["never_resolved"] = {**usual, "url": f"http://never.test:{ports['plain']}/silent"}
    made["endless_by_name"] = {**usual, "url": f"http://soon.test:{ports['plain']}/endless"}
    return made


def expected(name: str) -> set[str]:
    # on a machine that is busy a target may not come to its point before the deadline
    bare = name.partition("#")[0].removesuffix("_by_tls")
    if bare.startswith(("silent", "half", "dripped", "unread", "redirects_slowly", "never")):
        return {"timeout"}
    return {"timeout"} | ENDS.get(bare, {""})


async def names(host: str, port: int) -> Sequence[str]:
    if host == "never.test":
        await asyncio.Event().wait()
    return ["127.0.0.1"]


def resident(field: str) -> int:
    """The resident set in bytes: `VmRSS` now, or `VmHWM` at its highest."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def tidy() -> None:
    """Give back what is free, and forget the peak."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


async def fill_page_cache(schedules: Schedules) -> None:
    store = schedules._store
    for number in range(20):
        body = "x" * 4_000_000
        await store.documents.write([DocumentWrite("filler", str(number), DEFAULT_TEAM, body)], 0)


class Campaign:
    """One run: what was seen of each attempt."""

    def __init__(self, folder: Path, ports: dict[str, int], given: argparse.Namespace) -> None:
        self._url = f"sqlite:///{folder / 'app.db'}"
        self._ports = ports
        self._given = given
        self.over: list[float] = []  # seconds beyond the deadline
        self.ends: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.base = 0
        self.peak = 0

    async def run(self) -> None:
        given = self._given
        egress = Egress(EgressPolicy(allow=("127.0.0.1",)), look_up=names)
        limits = HttpLimits(total=given.at_once, per_host=given.at_once)
        async with Schedules(
            self._url, secrets=new_ring(), egress=egress, http_limits=limits, longest_wait=timedelta(milliseconds=50)
        ) as schedules:
            for number in range(8):
                await schedules.secrets.put(DEFAULT_TEAM, f"KEY_{number}", f"a secret of no meaning {number:08d}")
            ids = {}
            for name, action in self._jobs().items():
                ids[name] = (await schedules.create(name=name, action=action, **NEVER)).schedule_id
            await schedules.start()
            # what is loaded and compiled with the first request is no target's doing
            await self._round(schedules, {"closes": ids["closes"]})
            await fill_page_cache(schedules)
            tidy()
            self.base = resident("VmRSS")
            rounds = []
            for number in range(given.rounds):
                rounds.append(await self._round(schedules, ids))
                self.peak = resident("VmHWM")
                print(f"round {number + 1}: peak {self.peak - self.base:,} bytes above", file=sys.stderr)
            # only now: to look at records takes memory, too
            for runs in rounds:
                for name, run_id in runs.items():
                    await self._judge(schedules, name, run_id)
            await schedules.stop()

    def _jobs(self) -> dict[str, dict[str, Any]]:
        found = jobs(self._ports, self._given.seconds)
        if not self._given.only:
            return found
        wanted = self._given.only.split(",")
        # each as often as there are slots
        return {"closes": found["closes"]} | {
            f"{name}#{number}": found[name] for name in wanted for number in range(self._given.at_once)
        }

    async def _round(self, schedules: Schedules, ids: dict[str, str]) -> dict[str, str]:
        """Trigger each, and wait until all have ended; their runs by name."""
        before = _ended(schedules)
        runs = {name: await schedules.trigger(schedule_id) for name, schedule_id in ids.items()}
        async with asyncio.timeout(PATIENCE_SECONDS):
            while _ended(schedules) - before < len(runs):  # noqa: ASYNC110 - nobody is told of the end of a run
                await asyncio.sleep(0.05)
        return runs

    async def _judge(self, schedules: Schedules, name: str, run_id: str) -> None:
        (tried,) = (await schedules.run(run_id)).tried
        assert tried.started_at is not None
        assert tried.ended_at is not None
        took = (tried.ended_at - tried.started_at).total_seconds()
        self.over.append(took - self._given.seconds)
        error = (tried.detail or {}).get("error") or {"kind": ""}
        self.ends[error["kind"] or "succeeded"] += 1
        if error["kind"] not in expected(name):
            self.wrong.append(f"{name}: {error}")


def _ended(schedules: Schedules) -> int:
    metrics = schedules.metrics or {}
    return int(metrics["succeeded"]) + int(metrics["failed"])


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=10, help="attempts at each target")
    options.add_argument("--at-once", type=int, default=16)
    options.add_argument("--seconds", type=float, default=1.0, help="the deadline of each attempt")
    options.add_argument("--uvloop", action="store_true")
    options.add_argument("--only", default="", help="these targets alone, at all slots at once")
    given = options.parse_args()
    logging.getLogger("noonbell").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="noonbell-hostile-") as folder:
        program = [sys.executable, "-m", "tests.actions.egress.hostile", folder]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            campaign = Campaign(Path(folder), json.loads(server.stdout.readline()), given)
            _run(campaign, uvloop=given.uvloop)
            server.stdin.close()
            server.wait(30)
    over = sorted(campaign.over)
    bar = given.at_once * BODY_LIMIT + MARGIN_BYTES
    result = {
        "attempts": len(over),
        "at_once": given.at_once,
        "body_cap": BODY_LIMIT,
        "base_bytes": campaign.base,
        "peak_above_base": campaign.peak - campaign.base,
        "bar_bytes": bar,
        "over_p99_seconds": round(over[math.ceil(len(over) * 0.99) - 1], 3),
        "over_most_seconds": round(over[-1], 3),
        "ends": dict(sorted(campaign.ends.items())),
        "wrong": campaign.wrong,
    }
    in_time = result["over_p99_seconds"] <= 1 and result["over_most_seconds"] <= 3
    result["ok"] = in_time and campaign.peak - campaign.base <= bar and not campaign.wrong
    print(json.dumps(result))
    return 0 if result["ok"] else 1


def _run(campaign: Campaign, *, uvloop: bool) -> None:
    if not uvloop:
        asyncio.run(campaign.run())
        return
    import uvloop as faster

    faster.run(campaign.run())


if __name__ == "__main__":
    sys.exit(main())
