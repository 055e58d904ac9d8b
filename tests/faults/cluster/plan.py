"""What a cluster has to run, and which occurrences follow from it.

Every schedule has a beginning and an end of its own, so that its occurrences are known before it is created. They are
recomputed here from the specs alone: a one-shot is its instant, a cron schedule is walked minute by minute. How an
interval goes on depends on when it was started: that is checked link by link (see `checker`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from tests.faults.cluster.clock import MINUTE, SECOND

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Wanted:
    """One schedule, as the checker has to know it."""

    schedule_id: str
    type: Literal["one_shot", "cron", "interval"]
    first: int  # the instant of a one-shot; the first and the last instant at which others may come
    last: int
    every: int = MINUTE  # of an interval; a cron schedule takes the minutes that are multiples of it
    attempts: int = 1
    at_most_once: bool = False
    poison: bool = False
    catch_up: str = "run_once"
    cap: int = 10

    def occurrences(self) -> Iterator[int]:
        if self.type == "one_shot":
            yield self.first
        for minute in range(-(-self.first // MINUTE), self.last // MINUTE + 1):
            if self.type == "cron" and minute * MINUTE % self.every == 0:
                yield minute * MINUTE


@dataclass
class Plan:
    """Schedules to be created, and what is wanted of each."""

    fields: list[dict[str, Any]] = field(default_factory=list)
    wanted: dict[str, Wanted] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """From then on nothing new comes."""
        return max(wanted.last for wanted in self.wanted.values())

    def one_shot(self, schedule_id: str, at: int, **more: Any) -> None:
        self._add(Wanted(schedule_id, "one_shot", at, at, **_facts(more)), {"spec": moment(at).isoformat()}, more)

    def cron(self, schedule_id: str, first: int, last: int, *, minutes: int = 1, **more: Any) -> None:
        wanted = Wanted(schedule_id, "cron", first, last, minutes * MINUTE, **_facts(more))
        spec = "* * * * *" if minutes == 1 else f"{','.join(map(str, range(0, 60, minutes)))} * * * *"
        self._add(wanted, {"spec": spec, "start_at": moment(first), "end_at": moment(last)}, more)

    def interval(self, schedule_id: str, first: int, last: int, seconds: int, **more: Any) -> None:
        wanted = Wanted(schedule_id, "interval", first, last, seconds * SECOND, **_facts(more))
        self._add(wanted, {"spec": str(seconds), "start_at": moment(first), "end_at": moment(last)}, more)

    def _add(self, wanted: Wanted, spec: dict[str, Any], more: dict[str, Any]) -> None:
        chosen = {"catch_up_policy": "run_once", **more}
        action = {"kind": "callback", "name": chosen.pop("call", "work")}
        self.wanted[wanted.schedule_id] = wanted
        self.fields.append({"schedule_id": wanted.schedule_id, "type": wanted.type, "action": action} | spec | chosen)


def _facts(more: dict[str, Any]) -> dict[str, Any]:
    return {
        "attempts": more.get("retry", {}).get("attempts", 1),
        "at_most_once": more.get("at_most_once", False),
        "poison": more.get("call") == "poison",
        "catch_up": more.get("catch_up_policy", "run_once"),
        "cap": more.get("catch_up_cap", 10),
    }


def moment(at: int) -> datetime:
    return _EPOCH + at * timedelta(microseconds=1)


def mixed_load(
    chosen: random.Random,
    first: int,
    seconds: float,
    speed: int,
    *,
    per_second: float = 10,
    lasting: Sequence[float] = (0, 0, 0.02, 0.3, 0.8),
) -> Plan:
    """Something of each kind, from `first` on, for so many seconds of the machine; each job lasts one of `lasting`."""
    plan = Plan()
    last = first + round(seconds * speed * SECOND)
    for number in range(round(seconds * per_second)):
        payload: dict[str, Any] = {"s": chosen.choice(lasting)}
        more: dict[str, Any] = {"payload": payload, "call": chosen.choice(("work", "work", "work", "plain"))}
        kind = number % 20
        if kind == 7:
            more["at_most_once"] = True
        elif kind == 13:
            more["retry"] = {"attempts": 3, "delay_seconds": 2, "strategy": "fixed"}
            payload["fail"] = 1
        plan.one_shot(f"shot-{number}", chosen.randint(first, last), **more)
    for number in range(3):
        seconds_between = (2 + number) * speed
        plan.interval(f"interval-{number}", first, last, max(1, seconds_between // 2), payload={"s": 0.1 * number})
    if last - first >= 2 * MINUTE:
        plan.cron("minutely", first, last)
        plan.cron("slow", first, last, payload={"s": 1.5})
    return plan
