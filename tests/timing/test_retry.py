"""The waits between attempts, as tables; and which policies are refused."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.errors import RetryPolicyInvalidError
from noonbell.timing import RetryPolicy, Strategy

SECOND = 1_000_000
HOUR = 3600 * SECOND


def waits(policy: RetryPolicy, upto: int) -> list[float]:
    """Seconds before attempts 2, 3, … up to a number."""
    return [policy.delay_before(number) / SECOND for number in range(2, upto + 1)]


@pytest.mark.parametrize(
    ("strategy", "table"),
    [
        ("exponential", [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]),
        ("linear", [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60]),
        ("fixed", [5] * 12),
    ],
)
def test_the_waits_of_each_strategy(strategy: Strategy, table: list[int]) -> None:
    assert waits(RetryPolicy(attempts=13, strategy=strategy), 13) == table


@pytest.mark.parametrize(
    ("strategy", "table"),
    [("exponential", [2, 4, 8, 15, 15]), ("linear", [2, 4, 6, 8, 10]), ("fixed", [2, 2, 2, 2, 2])],
)
def test_the_cap(strategy: Strategy, table: list[int]) -> None:
    policy = RetryPolicy(attempts=6, delay_us=2 * SECOND, strategy=strategy, max_delay_us=15 * SECOND)
    assert waits(policy, 6) == table


def test_without_a_cap_a_long_delay_is_its_own() -> None:
    assert waits(RetryPolicy(attempts=4, delay_us=2 * HOUR), 4) == [7200, 7200, 7200]
    assert waits(RetryPolicy(attempts=4, delay_us=2 * HOUR, max_delay_us=5 * HOUR), 4) == [7200, 14400, 18000]
    assert waits(RetryPolicy(attempts=3, delay_us=2 * HOUR, max_delay_us=HOUR), 3) == [3600, 3600]


def test_by_default_there_is_one_attempt() -> None:
    policy = RetryPolicy()
    assert (policy.attempts, policy.delay_us, policy.strategy, policy.jitter) == (1, 5 * SECOND, "exponential", 0)
    assert [policy.allows(number) for number in (1, 2)] == [True, False]


def test_attempts_are_counted_from_the_first() -> None:
    policy = RetryPolicy(attempts=3)
    assert [policy.allows(number) for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert policy.delay_before(1) == 0
    for number in (0, -1):
        with pytest.raises(ValueError, match=f"attempt_number is {number}"):
            policy.delay_before(number)


@pytest.mark.parametrize("strategy", ["exponential", "linear", "fixed"])
def test_no_delay_still_waits_a_second(strategy: Strategy) -> None:
    assert waits(RetryPolicy(attempts=5, delay_us=0, strategy=strategy), 5) == [1, 1, 1, 1]


def test_half_a_second_grows_past_the_second() -> None:
    assert waits(RetryPolicy(attempts=5, delay_us=SECOND // 2), 5) == [1, 1, 2, 4]


def test_unlimited_attempts_go_on_and_stay_small() -> None:
    policy = RetryPolicy(attempts=None, max_delay_us=HOUR)
    assert policy.allows(10**9)
    assert policy.delay_before(10**9) == HOUR
    assert RetryPolicy(attempts=None, strategy="linear").delay_before(10**9) == HOUR
    assert RetryPolicy(attempts=None, strategy="fixed").delay_before(10**9) == 5 * SECOND


@given(
    st.sampled_from(["exponential", "linear", "fixed"]),
    st.integers(0, 10 * HOUR),
    st.one_of(st.none(), st.integers(SECOND, 100 * HOUR)),
    st.floats(0, 1),
    st.integers(2, 60),
    st.text(max_size=20),
)
def test_jitter_shortens_by_its_part_at_most(
    strategy: Strategy, delay: int, cap: int | None, jitter: float, number: int, run_id: str
) -> None:
    policy = RetryPolicy(None, delay, strategy, cap, jitter)
    plain = policy.delay_before(number)
    drawn = policy.delay_before(number, run_id)
    assert max(SECOND, plain * (1 - jitter) - 1) <= drawn <= plain
    assert policy.delay_before(number, run_id) == drawn


def test_jitter_tells_runs_and_attempts_apart() -> None:
    policy = RetryPolicy(attempts=10, strategy="fixed", delay_us=60 * SECOND, jitter=0.5)
    drawn = {policy.delay_before(number, run) for number in range(2, 11) for run in ("a/1", "a/2", "b/1")}
    assert len(drawn) == 27
    assert all(30 * SECOND <= delay <= 60 * SECOND for delay in drawn)
    assert RetryPolicy(attempts=10).delay_before(3, "a/1") == 10 * SECOND


_ATTEMPTS = "must be a whole number from 1 to 20, or None for no limit"
_DELAY = "must be whole microseconds from 0 to 31622400000000 (366 days)"
_CAP = "must be whole microseconds from 1000000 to 31622400000000 (366 days)"


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("attempts", 0, _ATTEMPTS),
        ("attempts", 21, _ATTEMPTS),
        ("attempts", True, _ATTEMPTS),
        ("attempts", 2.0, _ATTEMPTS),
        ("strategy", "random", "must be one of exponential, linear, fixed"),
        ("strategy", "", "must be one of exponential, linear, fixed"),
        ("strategy", None, "must be one of exponential, linear, fixed"),
        ("strategy", ["fixed"], "must be one of exponential, linear, fixed"),
        ("delay_us", -1, _DELAY),
        ("delay_us", 5.0, _DELAY),
        ("delay_us", 10**15, _DELAY),
        ("max_delay_us", 0, _CAP),
        ("max_delay_us", 999_999, _CAP),
        ("max_delay_us", "60", _CAP),
        ("jitter", -0.1, "must be a number from 0 to 1"),
        ("jitter", 1.5, "must be a number from 0 to 1"),
        ("jitter", float("nan"), "must be a number from 0 to 1"),
        ("jitter", True, "must be a number from 0 to 1"),
        ("jitter", "0.5", "must be a number from 0 to 1"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(field: str, value: Any, reason: str) -> None:
    with pytest.raises(RetryPolicyInvalidError) as raised:
        RetryPolicy(**{field: value})
    assert str(raised.value) == f"Invalid retry policy: {field} {value!r} {reason}"
    assert (raised.value.field, raised.value.reason) == (field, reason)
    assert raised.value.value is value


def test_the_error_travels_between_processes() -> None:
    with pytest.raises(RetryPolicyInvalidError) as raised:
        RetryPolicy(attempts=99)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301 - made in the line itself
