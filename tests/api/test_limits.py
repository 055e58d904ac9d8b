"""Buckets of tokens."""

from __future__ import annotations

from noonbell.api import limits
from noonbell.api.limits import Buckets


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_fine_and_then_it_is_the_rate_that_counts() -> None:
    seconds = Seconds()
    buckets = Buckets(60, seconds)
    assert [buckets.take("a") for _ in range(10)] == [None] * 10
    assert buckets.take("a") == 1
    assert buckets.take("b") is None, "everybody has his own"
    seconds.now += 1
    assert buckets.take("a") is None
    assert buckets.take("a") == 1
    seconds.now += 1000
    assert [buckets.take("a") for _ in range(11)] == [None] * 10 + [1], "it does not fill beyond its size"


def test_the_wait_that_is_told_is_long_enough() -> None:
    seconds = Seconds()
    buckets = Buckets(6, seconds)
    assert buckets.take("a") is None
    wait = buckets.take("a")
    assert wait == 10
    seconds.now += wait
    assert buckets.take("a") is None


def test_what_costs_more_takes_more() -> None:
    buckets = Buckets(60, Seconds())
    assert buckets.take("a", 10) is None
    assert buckets.take("a", 10) == 10


def test_a_fine_takes_what_there_is() -> None:
    buckets = Buckets(60, Seconds())
    buckets.fine("a", 3)
    assert [buckets.take("a") for _ in range(8)] == [None] * 7 + [1]
    buckets.fine("b", 100)
    assert buckets.take("b") == 1
    Buckets(0, Seconds()).fine("a", 1)


def test_no_limit() -> None:
    buckets = Buckets(0, Seconds())
    assert all(buckets.take("a") is None for _ in range(1000))


def test_the_number_of_buckets_is_bounded() -> None:
    buckets = Buckets(60, Seconds())
    for number in range(limits.MOST_BUCKETS + 100):
        buckets.take(str(number))
    assert len(buckets._buckets) == limits.MOST_BUCKETS
    assert "0" not in buckets._buckets
