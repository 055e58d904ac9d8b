"""The retry policy: how often a failed run is attempted again, and how long it waits before that.

Attempts are counted from 1, so the first retry is attempt 2. With a delay of 5 s the waits before attempts 2, 3, 4, 5
are 5, 10, 20, 40 s (exponential), 5, 10, 15, 20 s (linear) or 5, 5, 5, 5 s (fixed). None is longer than the cap, and
none shorter than a second: a delay of zero must not become a busy loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from noonbell.errors import RetryPolicyInvalidError
from noonbell.timing.jitter import jitter_us
from noonbell.timing.timing_protocol import SECOND

Strategy = Literal["exponential", "linear", "fixed"]
STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)

MOST_ATTEMPTS: Final = 20
SHORTEST_DELAY_US: Final = SECOND
LONGEST_DELAY_US: Final = 366 * 86_400 * SECOND
USUAL_CAP_US: Final = 3600 * SECOND


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Checked when it is made.

    `attempts` counts all of them, the first included; None goes on without end. Without `max_delay_us` the cap is an
    hour, or `delay_us` where that is more. `jitter` is the part of a delay, from 0 to 1, by which it may be shortened
    so that runs that failed together do not return together.
    """

    attempts: int | None = 1
    delay_us: int = 5 * SECOND
    strategy: Strategy = "exponential"
    max_delay_us: int | None = None
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.attempts is not None and not (_is_whole(self.attempts) and 1 <= self.attempts <= MOST_ATTEMPTS):
            reason = f"must be a whole number from 1 to {MOST_ATTEMPTS}, or None for no limit"
            raise RetryPolicyInvalidError("attempts", self.attempts, reason)
        if self.strategy not in STRATEGIES:
            raise RetryPolicyInvalidError("strategy", self.strategy, f"must be one of {', '.join(STRATEGIES)}")
        _check_delay("delay_us", self.delay_us, 0)
        if self.max_delay_us is not None:
            _check_delay("max_delay_us", self.max_delay_us, SHORTEST_DELAY_US)
        _check_jitter(self.jitter)

    def allows(self, attempt_number: int) -> bool:
        """Return whether the policy has an attempt of this number."""
        return self.attempts is None or attempt_number <= self.attempts

    def delay_before(self, attempt_number: int, run_id: str | None = None) -> int:
        """Microseconds between the end of the attempt before and the start of this one; none before the first.

        Jitter needs to know the run, to be the same whenever it is asked for; without `run_id` the delay is plain.
        """
        if attempt_number < 1:
            raise ValueError(f"attempt_number is {attempt_number}; attempts are counted from 1")
        if attempt_number == 1:
            return 0
        delay = min(self._planned(attempt_number - 1), self.longest_delay_us)
        if run_id is not None and self.jitter:
            delay -= jitter_us(run_id, attempt_number, int(delay * self.jitter))
        return max(delay, SHORTEST_DELAY_US)

    @property
    def longest_delay_us(self) -> int:
        """The cap: no delay is longer, not even one that a callback or a server asks for."""
        return max(USUAL_CAP_US, self.delay_us) if self.max_delay_us is None else self.max_delay_us

    def _planned(self, retry: int) -> int:
        if self.strategy == "exponential":
            # past the largest cap there is nothing to double: unlimited retries must not make giants of integers
            return self.delay_us << min(retry - 1, LONGEST_DELAY_US.bit_length())
        return self.delay_us * retry if self.strategy == "linear" else self.delay_us


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_delay(name: str, value: object, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= LONGEST_DELAY_US:
        reason = f"must be whole microseconds from {low} to {LONGEST_DELAY_US} (366 days)"
        raise RetryPolicyInvalidError(name, value, reason)


def _check_jitter(value: object) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise RetryPolicyInvalidError("jitter", value, "must be a number from 0 to 1")
