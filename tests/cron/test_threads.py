"""One expression asked from several threads at once: the tables it keeps must not mix up their answers."""

from __future__ import annotations

import random
import sys
import threading
from zoneinfo import ZoneInfo

from noonbell.cron import parse, zone_of
from noonbell.timing import CronTiming

YEAR = 31_556_952
SECOND = 1_000_000


def test_answers_do_not_depend_on_what_other_threads_ask() -> None:
    texts = ("0 0 29 2 *", "30 2 * * *", "0 12 14 2 *", "15 3 * * 1-5")
    zone = zone_of(ZoneInfo("America/New_York"))
    moments = [random.Random(seed).randrange(0, 60 * YEAR) for seed in range(150)]
    shared = {text: CronTiming(parse(text), zone) for text in texts}
    right = {
        (text, at): CronTiming(parse(text), zone_of(ZoneInfo("America/New_York"))).look(at * SECOND)
        for text in texts
        for at in moments
    }
    wrong: list[tuple[str, int]] = []

    def ask(seed: int) -> None:
        order = random.Random(seed)
        for _ in range(400):
            text, at = order.choice(texts), order.choice(moments)
            if shared[text].look(at * SECOND) != right[text, at]:
                wrong.append((text, at))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []
