"""`python -m tests.service.fast_clock serve …`: `noonbell` on a faster clock that several processes share."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from noonbell import bootstrap
from noonbell.cli import main
from tests.faults.cluster.clock import ClockSetting, FileClock

VARIABLE: Final = "FAST_CLOCK"


def run() -> None:
    clock = FileClock(msgspec.json.decode(os.environ[VARIABLE], type=ClockSetting))
    vars(bootstrap)["clock_for"] = lambda _: clock
    main()


if __name__ == "__main__":
    run()
