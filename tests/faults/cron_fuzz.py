"""Random texts through `parse`, `parse_field` and `translate`: nothing but the declared errors, and never slow.

    python -m tests.faults.cron_fuzz [--count N] [--seed S]

Half of the texts look like cron (fields, steps, names, macros, Quartz letters, mutations of valid expressions), the
rest is wild: any characters, long repetitions, huge numbers, up to and beyond the length that is accepted. A valid text
must also survive a round: its translation parses to an equal expression.

The last line on standard output is one JSON object; the exit status is 1 when something undeclared was raised, a round
failed or a single parse took longer than `SLOW_SECONDS` of CPU time, three times in a row.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import dataclass, field

from noonbell.cron import FIELD_NAMES, parse, parse_field, translate
from noonbell.errors import FieldParseError, InvalidCronExpressionError

DEFAULT_COUNT = 1_000_000
SLOW_SECONDS = 0.02

_PIECES = (
    *("*", "*", "*", "0", "1", "5", "00", "07", "7", "12", "13", "23", "24", "31", "32", "59", "60", "9" * 20),
    *("1-5", "5-1", "0-59", "0-6", "1-31", "1-12", "22-2", "5-7", "1,2,3", "1,,2", ",", "-", "1-", "-1", "1--2", "*,*"),
    *("*/15", "*/1", "*/0", "0-30/5", "5/10", "*/99", "?", "L", "W", "15W", "LW", "1#2", "5L", "H", "H/5", "C"),
    *("jan", "MON", "sunday", "mon-fri", "JAN,feb", "fri-mon", "@daily", "@reboot", "@every 5m", "@"),
    *("+1", "1.5", "1e1", "0x1", "\u0663", "\u00b2", "\u2013", "\u00e9", "\x00", "\n", "\u200b", "\u2003", ""),
)
_VALID = ("* * * * *", "15 3 * * 1-5", "0 0 1,15 * 1", "0,30 8,10,12 1-7 1,4,7,10 *", "59 23 31 12 *", "0 0 29 2 *")
_ALPHABET = (
    "0123456789*,-/ \t?#LWHC@jJaAnNmMoOsSuU+._~!$%&'\"\\()[]{}|;:<>=^`\n\r\x0b\x0c\x00\x85\xa0"
    "\u00b2\u0663\u096b\U0001d7d9\u4e94\u00e9\u2013\u200b\u2028\ufeff"
)
_BLANKS = (" ", " ", " ", "  ", "\t", " \t ", "\n", "\xa0", "")
_ODD_LENGTHS = (0, 1, 2, 5, 20, 100, 999, 1000, 1001, 5000)


def structured(chosen: random.Random) -> str:
    kind = chosen.random()
    if kind < 0.35:
        count = 5 if chosen.random() < 0.8 else chosen.randint(0, 9)
        blank = " " if chosen.random() < 0.8 else chosen.choice(_BLANKS)
        return blank.join(chosen.choice(_PIECES) for _ in range(count))
    if kind < 0.6:
        steps = chosen.random() < 0.3
        return " ".join(
            _in_range(chosen, *bounds, steps=steps) for bounds in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
        )
    text = list(chosen.choice(_VALID))
    for _ in range(chosen.randint(1, 4)):
        at = chosen.randrange(len(text) + 1)
        text[at : at + chosen.randint(0, 2)] = chosen.choice(_ALPHABET)
    return "".join(text)


def _in_range(chosen: random.Random, low: int, high: int, *, steps: bool) -> str:
    if chosen.random() < 0.4:
        return "*"
    elements = []
    for _ in range(chosen.randint(1, 5)):
        first, last = sorted((chosen.randint(low, high), chosen.randint(low, high)))
        step = f"/{chosen.randint(1, 9)}" if steps else ""
        elements.append(chosen.choice((f"{first}", f"{first}-{last}{step}")))
    return ",".join(elements)


def wild(chosen: random.Random) -> str:
    kind = chosen.random()
    if kind < 0.6:
        return "".join(chosen.choices(_ALPHABET, k=chosen.randint(0, 40)))
    if kind < 0.8:
        # surrogates cannot be encoded, but a str may hold them
        return "".join(chr(chosen.randrange(0x110000)) for _ in range(chosen.randint(0, 20)))
    piece = chosen.choice((*_PIECES, "1,", "0-59,", "9", "*/", "-", "1 ", "* ", "a", " ", "((", "0"))
    length = chosen.choice(_ODD_LENGTHS)
    body = (piece * (length // max(len(piece), 1) + 1))[:length]
    return body + chosen.choice(("", " * * * *", "x", " "))


@dataclass
class Findings:
    texts: int = 0
    valid: int = 0
    translated: int = 0
    faults: list[str] = field(default_factory=list)
    parse_seconds: float = 0.0
    slowest_seconds: float = 0.0
    slowest_text: str = ""

    def try_text(self, text: str, position: int) -> None:
        self.texts += 1
        self._timed_parse(text)
        try:
            said = translate(text)
        except InvalidCronExpressionError as error:
            self._check_attributes(error, text)
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            self.faults.append(f"translate({text!r:.200}) raised {error!r:.200}")
        else:
            self.translated += 1
            self._check_round(text, said)
        name = FIELD_NAMES[position % 5]
        try:
            parse_field(text, name)
        except FieldParseError as error:
            if (error.field_name, error.field_value) != (name, text):
                self.faults.append(f"parse_field({text!r:.200}) names {error.field_name} {error.field_value!r:.200}")
        except Exception as error:  # noqa: BLE001 - likewise
            self.faults.append(f"parse_field({text!r:.200}) raised {error!r:.200}")

    def _timed_parse(self, text: str) -> None:
        spent = self._parse_once(text)
        # an interrupt may hit any single measurement: the best of three counts where it matters
        if spent > self.slowest_seconds:
            spent = min(spent, self._parse_once(text), self._parse_once(text))
        self.parse_seconds += spent
        if spent > self.slowest_seconds:
            self.slowest_seconds, self.slowest_text = spent, text
            if spent > SLOW_SECONDS:
                self.faults.append(f"parse({text!r:.200}) took {spent:.3f} s")

    def _parse_once(self, text: str) -> float:
        began = time.process_time()
        try:
            parse(text)
        except InvalidCronExpressionError as error:
            spent = time.process_time() - began
            self._check_attributes(error, text)
            return spent
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            self.faults.append(f"parse({text!r:.200}) raised {error!r:.200}")
        return time.process_time() - began

    def _check_attributes(self, error: InvalidCronExpressionError, text: str) -> None:
        if error.expression != text or error.field not in (*FIELD_NAMES, "expression") or not error.reason:
            self.faults.append(
                f"the error of {text!r:.200} has wrong attributes: {error.field!r} {error.reason!r:.200}"
            )

    def _check_round(self, text: str, said: str) -> None:
        try:
            expression = parse(said)
            if translate(said) != said:
                self.faults.append(f"translate({said!r:.200}) is not itself")
        except Exception as error:  # noqa: BLE001 - likewise
            self.faults.append(f"translate({text!r:.200}) gave {said!r:.200}, which raised {error!r:.200}")
            return
        try:
            strict = parse(text)
        except InvalidCronExpressionError:
            return
        self.valid += 1
        if strict != expression:
            self.faults.append(f"{text!r:.200} is valid, but translates to something else: {said!r:.200}")


def run(count: int, seed: int, *, progress: bool = False) -> Findings:
    chosen, findings = random.Random(seed), Findings()
    for position in range(count):
        text = structured(chosen) if position % 2 else wild(chosen)
        findings.try_text(text, position)
        if progress and (position + 1) % 100_000 == 0:
            print(f"{position + 1:,} texts, {len(findings.faults)} faults", file=sys.stderr, flush=True)
    return findings


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=DEFAULT_COUNT)
    options.add_argument("--seed", type=int, default=2)
    given = options.parse_args()
    began = time.monotonic()
    findings = run(given.count, given.seed, progress=True)
    for fault in findings.faults[:20]:
        print(fault, file=sys.stderr)
    result = {
        "texts": findings.texts,
        "valid": findings.valid,
        "translated": findings.translated,
        "faults": len(findings.faults),
        "mean_parse_us": round(findings.parse_seconds / max(findings.texts, 1) * 1e6, 2),
        "max_parse_us": round(findings.slowest_seconds * 1e6, 1),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))
    return 1 if findings.faults else 0


if __name__ == "__main__":
    sys.exit(main())
