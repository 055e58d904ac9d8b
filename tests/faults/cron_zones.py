"""Every clock change of every zone from 2000 to 2037, twelve shapes, both policies, against the minute-walking oracle.

    python -m tests.faults.cron_zones [ZONE ...] [--workers N] [--first-year Y] [--last-year Y]

Around each change a window of days is walked once by the oracle; then `next`, `previous`, `between` and `count` are
asked at the edges of the change and at random instants, for each zone that has this window. Zones that share a window
share the walk, never the answers: the cron core is asked anew for each zone. Besides, each zone's segments are held
against the transitions in the zone data from 1970 to 2100.

Progress goes to standard error. The last line on standard output is one JSON object; the exit status is 1 on a
mismatch.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from noonbell.cron import CronExpression, parse, zone_of
from tests.cron.oracle import POLICIES, Policy, Shape, Walk
from tests.cron.zone_facts import Change, all_zones, changes, year_start

SHAPES = (
    "* * * * *",
    "0,15,30,45 * * * *",
    "30 2 * * *",
    "15 3 * * 1-5",
    "0 0 * * *",
    "59 23 * * *",
    "5,35 0-4 * * 0,6",
    "10,50 0,1,2,3,4,22,23 * * *",
    "0 0 1,15 * 1",
    "0 1 25-31 3,10 0",
    "45 * 1-7 * *",
    "20 0-23 * * *",
)
FIRST_YEAR, LAST_YEAR = 2000, 2037
SEGMENTS_FROM, SEGMENTS_TO = 1970, 2100

# Wide enough for the largest leap (a whole day) and for the days on both sides of it.
REACH = 40 * 3600
RANDOM_INSTANTS = 6
SHOWN_MISMATCHES = 20


@dataclass
class Tally:
    comparisons: int = 0
    mismatches: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.comparisons += other.comparisons
        self.mismatches += other.mismatches

    def compare(self, got: object, want: object, *what: object) -> None:
        self.comparisons += 1
        if got != want:
            self.mismatches.append(f"{' '.join(map(str, what))}: got {got}, the oracle says {want}")


@dataclass(frozen=True)
class Window:
    """A stretch around one change, all the changes that fall into it or shortly before, and the zones that have it."""

    at: int
    near: tuple[Change, ...]
    zones: tuple[str, ...]


def windows(zones: Iterable[str], first_year: int, last_year: int) -> list[Window]:
    sharing: dict[tuple[int, tuple[Change, ...]], list[str]] = defaultdict(list)
    for key in zones:
        for change in changes(key, first_year, last_year):
            # the years beside the range too, for what lies near its edges
            near = tuple(
                other
                for other in changes(key, first_year - 1, last_year + 1)
                if change.at - 8 * 86_400 <= other.at <= change.at + 8 * 86_400
            )
            sharing[change.at, near].append(key)
    found = [Window(at, near, tuple(keys)) for (at, near), keys in sharing.items()]
    return sorted(found, key=lambda window: (window.zones, window.at))


def instants(window: Window) -> list[float]:
    """The moments to ask at: both sides of the change and of its mirror images, and some random ones."""
    change = next(near for near in window.near if near.at == window.at)
    shift = abs(change.after - change.before)
    edges = [window.at + base + step for base in (-shift, 0, shift) for step in (-60, -1, 0, 1, 60)]
    chosen = random.Random(f"{window.at} {window.near}")
    wide = [window.at + chosen.uniform(-REACH, REACH) for _ in range(RANDOM_INSTANTS)]
    # halves of a second survive the trip through a datetime exactly
    return sorted({float(at) for at in edges} | {round(at * 2) / 2 for at in wide})


def check_segments(key: str) -> Tally:
    """The zone's segments against the transitions of the zone data, over more years than the windows have."""
    tally = Tally()
    found = zone_of(ZoneInfo(key)).transitions(year_start(SEGMENTS_FROM), year_start(SEGMENTS_TO + 1))
    wanted = [tuple(change) for change in changes(key, SEGMENTS_FROM, SEGMENTS_TO)]
    tally.compare([tuple(change) for change in found], wanted, "transitions", key)
    return tally


def check_window(window: Window) -> Tally:
    start, end = window.at - REACH, window.at + REACH
    walk = Walk(start, end, ZoneInfo(window.zones[0]))
    asked = [at for at in instants(window) if start <= at < end]
    tally = Tally()
    for text in SHAPES:
        expression, shape = parse(text), Shape(text)
        for policy in POLICIES:
            truth = walk.occurrences(shape, policy)
            for key in window.zones:
                _check_neighbours(tally, expression, policy, key, asked, truth, (start, end))
                _check_stretches(tally, expression, policy, key, window.at, truth, (start, end))
    return tally


def _check_neighbours(
    tally: Tally,
    expression: CronExpression,
    policy: Policy,
    key: str,
    asked: list[float],
    truth: list[int],
    reach: tuple[int, int],
) -> None:
    zone = ZoneInfo(key)
    segments = zone_of(zone)
    start, end = reach
    for at in asked:
        when = datetime.fromtimestamp(at, zone)
        index = bisect_right(truth, at)
        following = expression.next(when, dst=policy)
        preceding = expression.previous(when, dst=policy)
        what = (key, expression.text, policy, when.isoformat())
        if index < len(truth):
            tally.compare(_shown(following), _shown(datetime.fromtimestamp(truth[index], zone)), "next", *what)
            tally.compare(expression.next_epoch(int(at // 1), segments, policy), truth[index], "next_epoch", *what)
        else:
            tally.compare(following.timestamp() >= end, True, "next beyond the window", *what)
        if index:
            tally.compare(_shown(preceding), _shown(datetime.fromtimestamp(truth[index - 1], zone)), "previous", *what)
        else:
            tally.compare(preceding.timestamp() < start, True, "previous before the window", *what)


def _check_stretches(
    tally: Tally,
    expression: CronExpression,
    policy: Policy,
    key: str,
    at: int,
    truth: list[int],
    reach: tuple[int, int],
) -> None:
    zone = ZoneInfo(key)
    segments = zone_of(zone)
    start, end = reach
    what = (key, expression.text, policy)
    first, change, last = (datetime.fromtimestamp(edge, zone) for edge in (start, at, end))
    listed = [int(found.timestamp()) for found in expression.between(first, last, dst=policy)]
    tally.compare(listed, truth, "between", *what, first, last)
    tally.compare(list(expression.epochs_between(start, end, segments, policy)), truth, "epochs_between", *what, at)
    before = bisect_left(truth, at)
    tally.compare(expression.count(first, last, dst=policy), len(truth), "count", *what, first, last)
    tally.compare(expression.count(first, change, dst=policy), before, "count", *what, first, change)
    tally.compare(expression.count(change, last, dst=policy), len(truth) - before, "count", *what, change, last)


def _shown(at: datetime) -> tuple[float, datetime, int]:
    """Everything that tells two datetimes of one zone apart: the instant, the wall and the fold."""
    return at.timestamp(), at.replace(tzinfo=None, fold=0), at.fold


def run(zones: list[str], workers: int, first_year: int = FIRST_YEAR, last_year: int = LAST_YEAR) -> tuple[Tally, int]:
    """The tally, and how many changes it covers."""
    tasks: list[Window | str] = [*zones, *windows(zones, first_year, last_year)]
    tally = Tally()
    began = time.monotonic()
    for done, part in enumerate(_tallies(tasks, workers), start=1):
        tally.add(part)
        if done % 250 == 0 or done == len(tasks):
            print(
                f"{done}/{len(tasks)} zones and windows, {tally.comparisons:,} comparisons, "
                f"{len(tally.mismatches)} mismatches, {time.monotonic() - began:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    return tally, sum(len(task.zones) for task in tasks if isinstance(task, Window))


def _tallies(tasks: list[Window | str], workers: int) -> Iterator[Tally]:
    if workers == 1:
        yield from map(_check, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(_check, tasks, chunksize=8)


def _check(task: Window | str) -> Tally:
    return check_window(task) if isinstance(task, Window) else check_segments(task)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("zones", nargs="*", help="IANA names; all when none is given")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--first-year", type=int, default=FIRST_YEAR)
    options.add_argument("--last-year", type=int, default=LAST_YEAR)
    given = options.parse_args()
    zones = given.zones or all_zones()
    began = time.monotonic()
    tally, transitions = run(zones, given.workers, given.first_year, given.last_year)
    for mismatch in tally.mismatches[:SHOWN_MISMATCHES]:
        print(mismatch, file=sys.stderr)
    result = {
        "zones": len(zones),
        "transitions": transitions,
        "shapes": len(SHAPES),
        "comparisons": tally.comparisons,
        "mismatches": len(tally.mismatches),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))
    return 1 if tally.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
