"""Noonbell's cron arithmetic beside other Python libraries, on the same work, in one run.

    .venv-bench/bin/python benchmarks/bench_cron.py [--json FILE] [--rounds N] [--occurrences N]

The work: twelve expressions, 1,000 consecutive occurrences each, from 2024-01-01 00:00, in UTC and in America/New_York.
Each library is asked for one occurrence after the other as its documentation shows, with aware datetimes. CPU time, the
best of five rounds for each expression; in each round the libraries take turns expression by expression.

- Rates are occurrences over the summed best times of the twelve. croniter and cronsim are iterators, so Noonbell's
  iterator (`between`) stands for it; the rows marked (extra) are its other ways to the same occurrences: `next`, which
  is given a datetime each time, and the engine's integers. Their ratio is to the iterator. "first round" is the rate
  in a fresh process: Noonbell has to find the zone's clock changes then, thousands of years of them for the rarest
  expressions; its extra rows come after that and find them known.
- Parsing: every text is new, in each round and for each library, so that no cache of whole texts helps; "then next"
  adds the first occurrence, because a parser may put off work until then.
- Wrong: occurrences given that are not right, plus right ones left out up to the last one given. Right is what walking
  civil days and asking zoneinfo says. Libraries differ on purpose at clock changes, so they are judged by both
  readings: literal (a missing minute is skipped, a repeated one fires twice) and once (Noonbell's other
  policy). A wrong count above 0 in UTC is no matter of clock changes.
- A library may stop early (an error, a limit, or no progress): what it gave is counted, and it is said.

APScheduler counts weekdays from Monday = 0 (its documentation warns of it), so it gets names, such as mon-fri. It and
celery want day and weekday to match both where POSIX says either; that shows as wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from noonbell.cron import parse, zone_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for the oracle among the tests

EXPRESSIONS = (
    "* * * * *",
    "15 3 * * 1-5",
    "0 0 1,15 * 1",
    "0 12 14 2 *",
    "0 0 29 2 *",
    "59 23 31 12 *",
    "0 0 31 * *",
    "0,15,30,45 * * * *",
    "0 9-17 * * 1-5",
    "30 2 * * *",
    "5 1 * * 0",
    "0,30 8,10,12,14,16,18 1-7 1,4,7,10 *",
)
ZONES = ("UTC", "America/New_York")
HEADLINE = "Noonbell between"
PEERS = ("croniter", "cronsim", "APScheduler", "celery")
BAR, BAR_AGAINST = 25, ("croniter", "cronsim")
PARSED_PER_ROUND = 1500

Occurrences = Iterator[datetime]
Maker = Callable[[str, datetime], Occurrences]

# --- the libraries: each gives an endless iterator of occurrences after a start ---------------------------------------


def noonbell_next(text: str, start: datetime) -> Occurrences:
    expression, at = parse(text), start
    while True:
        at = expression.next(at)
        yield at


def noonbell_between(text: str, start: datetime) -> Occurrences:
    # everything before the start's own minute is past; the others, too, look strictly after it
    return parse(text).between(start + timedelta(seconds=1), datetime(9999, 12, 30, tzinfo=start.tzinfo))


def noonbell_integers(text: str, start: datetime) -> Iterator[Any]:
    expression, zone, at = parse(text), zone_of(_zone(start)), int(start.timestamp())
    while True:
        at = expression.next_epoch(at, zone)
        yield at


def croniter_next(text: str, start: datetime) -> Occurrences:
    from croniter import croniter

    found = croniter(text, start)
    while True:
        yield found.get_next(datetime)


def cronsim_next(text: str, start: datetime) -> Occurrences:
    from cronsim import CronSim

    return iter(CronSim(text, start))


def apscheduler_next(text: str, start: datetime) -> Occurrences:
    from apscheduler.triggers.cron import CronTrigger

    trigger, at = CronTrigger.from_crontab(_with_day_names(text), timezone=start.tzinfo), start
    while True:
        at = trigger.get_next_fire_time(at, at)
        if at is None:
            return
        yield at


def celery_next(text: str, start: datetime) -> Occurrences:
    schedule, zone, at = _celery_crontab(text, _zone(start)), start.tzinfo, start
    while True:
        now = at
        schedule.nowfun = lambda now=now: now
        # the estimate is an elapsed time, so it is added in UTC
        at = (at.astimezone(UTC) + schedule.remaining_estimate(at)).astimezone(zone)
        yield at


def _celery_crontab(text: str, zone: tzinfo) -> Any:
    from celery.schedules import crontab

    minute, hour, day, month, weekday = text.split()
    return crontab(minute, hour, weekday, day, month, app=_celery_app(str(zone)))


_apps: dict[str, Any] = {}


def _celery_app(zone: str) -> Any:
    from celery import Celery

    if zone not in _apps:
        _apps[zone] = Celery("bench", set_as_current=False, broker="memory://")
        _apps[zone].conf.timezone = zone
    return _apps[zone]


def _with_day_names(text: str) -> str:
    names = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
    *others, weekday = text.split()
    if weekday.startswith("0-"):  # no range from Sunday where the week begins on Monday
        weekday = ",".join(map(str, range(int(weekday[2:]) + 1)))
    return " ".join([*others, "".join(names[int(char)] if char.isdigit() else char for char in weekday)])


def _zone(at: datetime) -> tzinfo:
    assert at.tzinfo is not None
    return at.tzinfo


MAKERS: dict[str, Maker] = {
    HEADLINE: noonbell_between,
    "Noonbell next (extra)": noonbell_next,
    "Noonbell integers (extra)": noonbell_integers,
    "croniter": croniter_next,
    "cronsim": cronsim_next,
    "APScheduler": apscheduler_next,
    "celery": celery_next,
}

# --- what is right ----------------------------------------------------------------------------------------------------


class Reference:
    """The right occurrences of one expression in one zone, by both readings, as far as they are asked for."""

    def __init__(self, text: str, start: datetime) -> None:
        from tests.cron.oracle import Shape, civil_days

        self.zone, self.start = _zone(start), start
        self._shape = Shape(text)
        self._civil = civil_days(self._shape, start.replace(tzinfo=None), datetime(9999, 12, 30))  # noqa: DTZ001 - civil
        self._reached = start.replace(tzinfo=None)
        self._found: dict[str, set[datetime]] = {"literal": set(), "once": set()}

    def up_to(self, last: datetime, policy: str) -> set[datetime]:
        """In UTC, after the start and up to `last`."""
        limit = last.astimezone(self.zone).replace(tzinfo=None) + timedelta(days=2)
        while self._reached < limit:
            civil = next(self._civil, None)
            if civil is None:
                break
            self._reached = civil
            self._add(civil)
        return {at for at in self._found[policy] if self.start < at <= last}

    def _add(self, civil: datetime) -> None:
        comings = [civil.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
        real = sorted({at for at in comings if at.astimezone(self.zone).replace(tzinfo=None) == civil})
        self._found["literal"].update(real)
        if len(self._shape.hours) == 24:
            self._found["once"].update(real)
        elif real:
            self._found["once"].add(real[0])
        else:
            # the wall leapt over it: the leap lies between the two ways to read the time
            low, high = sorted(comings)
            offset = low.astimezone(self.zone).utcoffset()
            seconds = range(int((high - low).total_seconds()) + 1)
            after = bisect_right(
                seconds, 0, key=lambda s: (low + timedelta(seconds=s)).astimezone(self.zone).utcoffset() != offset
            )
            self._found["once"].add(low + timedelta(seconds=after))


# --- measuring --------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """One library on one expression in one zone."""

    given: int = 0
    stopped: str = ""
    seconds: list[float] = field(default_factory=list)
    wrong_literal: int = 0
    wrong_once: int = 0


Measured = dict[str, dict[str, dict[str, Result]]]


def take(maker: Maker, text: str, start: datetime, count: int) -> tuple[list[Any], float, str]:
    """The occurrences, the CPU time and why it stopped early, if it did."""
    found: list[Any] = []
    stopped = ""
    began = time.process_time()
    try:
        found.extend(islice(maker(text, start), count))
    except Exception as error:  # noqa: BLE001 - whatever a library does at its limits
        stopped = f"{type(error).__name__}: {error}"[:80]
    return found, time.process_time() - began, stopped


def judge(result: Result, found: list[Any], reference: Reference, count: int) -> None:
    if not found:
        return
    instants = [
        datetime.fromtimestamp(at, UTC) if isinstance(at, int) else at.astimezone(UTC).replace(fold=0) for at in found
    ]
    last = max(instants)
    if len(set(instants)) < len(instants) or sorted(instants) != instants:
        result.stopped = "repeats itself or goes back"
    elif len(found) < count and not result.stopped:
        result.stopped = "ends early"
    given = set(instants)
    repeated = len(instants) - len(given)
    result.wrong_literal = len(given ^ reference.up_to(last, "literal")) + repeated
    result.wrong_once = len(given ^ reference.up_to(last, "once")) + repeated


def measure(rounds: int, count: int) -> Measured:
    """Zone -> library -> expression -> result."""
    results = {zone: {name: {text: Result() for text in EXPRESSIONS} for name in MAKERS} for zone in ZONES}
    for this_round in range(rounds):
        for key in ZONES:
            zone: tzinfo = UTC if key == "UTC" else ZoneInfo(key)
            start = datetime(2024, 1, 1, tzinfo=zone)
            for text in EXPRESSIONS:
                reference = Reference(text, start) if this_round == 0 else None
                for name, maker in MAKERS.items():
                    result = results[key][name][text]
                    found, spent, stopped = take(maker, text, start, count)
                    result.seconds.append(spent)
                    if reference is not None:
                        result.given, result.stopped = len(found), stopped
                        judge(result, found, reference, count)
        print(f"round {this_round + 1} of {rounds} done", file=sys.stderr, flush=True)
    return results


def distinct_texts(count: int, chosen: random.Random, seen: set[str]) -> list[str]:
    """Valid expressions of the twelve's kinds that were never used before."""

    def some(low: int, high: int) -> str:
        first, last = sorted(chosen.sample(range(low, high + 1), 2))
        kinds = (f"{first}", f"{first}-{last}", f"{first},{last}", "*")
        return chosen.choice(kinds)

    texts: list[str] = []
    while len(texts) < count:
        text = f"{some(0, 59)} {some(0, 23)} {some(1, 28)} {some(1, 12)} {some(0, 6)}"
        if text not in seen:
            seen.add(text)
            texts.append(text)
    return texts


def measure_parsing(rounds: int, count: int) -> dict[str, tuple[float, float]]:
    """Library -> (parses/s, parses with the first occurrence/s), the best round each."""
    from apscheduler.triggers.cron import CronTrigger
    from croniter import croniter
    from cronsim import CronSim

    start = datetime(2024, 1, 1, tzinfo=UTC)
    parsers: dict[str, Callable[[str], object]] = {
        HEADLINE: parse,
        "croniter": lambda text: croniter(text, start),
        "cronsim": lambda text: CronSim(text, start),
        "APScheduler": lambda text: CronTrigger.from_crontab(text, timezone=UTC),
        "celery": lambda text: _celery_crontab(text, UTC),
    }
    chosen, seen = random.Random(7), set[str]()
    best: dict[str, list[float]] = {name: [0.0, 0.0] for name in parsers}
    for _ in range(rounds):
        for name, parser in parsers.items():
            texts = distinct_texts(count, chosen, seen)
            given = [_with_day_names(text) for text in texts] if name == "APScheduler" else texts
            began = time.process_time()
            for text in given:
                parser(text)
            best[name][0] = max(best[name][0], count / (time.process_time() - began))
            texts = distinct_texts(count // 5, chosen, seen)
            maker = MAKERS[name]
            began = time.process_time()
            for text in texts:
                next(maker(text, start))
            best[name][1] = max(best[name][1], len(texts) / (time.process_time() - began))
    return {name: (rates[0], rates[1]) for name, rates in best.items()}


# --- telling ----------------------------------------------------------------------------------------------------------


def rate(results: dict[str, Result], pick: Callable[[list[float]], float] = min) -> float:
    return sum(result.given for result in results.values()) / sum(pick(result.seconds) for result in results.values())


def summary(measured: Measured, parsing: dict[str, tuple[float, float]]) -> dict[str, Any]:
    told: dict[str, Any] = {"zones": {}, "parsing": {}, "versions": {}}
    for key, libraries in measured.items():
        ours = rate(libraries[HEADLINE])
        told["zones"][key] = {
            name: {
                "occurrences_per_s": round(rate(results)),
                "first_round_occurrences_per_s": round(rate(results, lambda seconds: seconds[0])),
                "ratio": round(ours / rate(results), 2),
                "lowest_ratio_of_one_expression": round(
                    min(
                        (min(results[text].seconds) / max(results[text].given, 1))
                        / (min(libraries[HEADLINE][text].seconds) / libraries[HEADLINE][text].given)
                        for text in EXPRESSIONS
                    ),
                    2,
                ),
                "given": sum(result.given for result in results.values()),
                "wrong_literal": sum(result.wrong_literal for result in results.values()),
                "wrong_once": sum(result.wrong_once for result in results.values()),
                "stopped": {text: result.stopped for text, result in results.items() if result.stopped},
                "by_expression": {
                    text: {
                        "occurrences_per_s": round(result.given / min(result.seconds)),
                        "given": result.given,
                        "wrong_literal": result.wrong_literal,
                        "wrong_once": result.wrong_once,
                    }
                    for text, result in results.items()
                },
            }
            for name, results in libraries.items()
        }
    for name, (alone, with_next) in parsing.items():
        told["parsing"][name] = {"parses_per_s": round(alone), "parses_then_next_per_s": round(with_next)}
    told["versions"] = {name: version(name) for name in PEERS}
    told["python"] = sys.version.split()[0]
    told["bar"] = {"parsing at least as fast as cronsim": parsing[HEADLINE][0] >= parsing["cronsim"][0]}
    for key in ZONES:
        for peer in BAR_AGAINST:
            told["bar"][f"{BAR} times {peer} in {key}"] = told["zones"][key][peer]["ratio"] >= BAR
    return told


def show(told: dict[str, Any]) -> None:
    print(f"Python {told['python']}; " + ", ".join(f"{name} {found}" for name, found in told["versions"].items()))
    for key, libraries in told["zones"].items():
        print(f"\n{key}\n{'':27}{'occurrences/s':>14}{'first round':>13}{'ratio':>8}{'lowest':>8}{'given':>8}", end="")
        print(f"{'wrong':>8}{'wrong':>8}")
        print(f"{'':27}{'':>14}{'':>13}{'':>8}{'of one':>8}{'':>8}{'literal':>8}{'once':>8}")
        for name, row in libraries.items():
            print(
                f"{name:27}{row['occurrences_per_s']:>14,}"
                f"{row['first_round_occurrences_per_s']:>13,}{row['ratio']:>8.1f}"
                f"{row['lowest_ratio_of_one_expression']:>8.1f}{row['given']:>8,}"
                f"{row['wrong_literal']:>8,}{row['wrong_once']:>8,}"
            )
        for name, row in libraries.items():
            for text, why in row["stopped"].items():
                print(f"  {name} on {text}: gave {row['by_expression'][text]['given']:,}; {why}")
    print(f"\n{'parsing, new texts only':27}{'parses/s':>14}{'then next':>14}")
    for name, row in told["parsing"].items():
        print(f"{name:27}{row['parses_per_s']:>14,}{row['parses_then_next_per_s']:>14,}")
    print()
    for what, held in told["bar"].items():
        print(f"{'held' if held else 'MISSED':8}{what}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, help="write everything there, down to the single expression")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--occurrences", type=int, default=1000)
    given = options.parse_args()
    measured = measure(given.rounds, given.occurrences)
    parsing = measure_parsing(given.rounds, PARSED_PER_ROUND)
    told = summary(measured, parsing)
    if given.json:
        given.json.write_text(json.dumps(told, indent=1) + "\n")
    show(told)
    return 0 if all(told["bar"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
