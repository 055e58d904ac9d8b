"""Which claimed streams may start, where one of them may be what kills the process."""

from __future__ import annotations

from noonbell.actions.last_tries import Chosen, LastTries
from noonbell.actions.stream_in_flight import StreamInFlight
from noonbell.core.records import Stream
from noonbell.testing.storage_cases.base import SECOND, T0


def served(sid: int, attempt: int) -> StreamInFlight:
    return StreamInFlight(Stream(sid, attempt, []), "me", T0)


def hand(*sids: int) -> dict[int, StreamInFlight]:
    return {sid: served(sid, 0) for sid in sids}


def test_streams_that_have_tries_left_start_together() -> None:
    tries, claimed = LastTries(3), [served(1, 0), served(2, 2), served(3, 4)]
    assert tries.choose(claimed, {}, T0) == Chosen(claimed)
    assert tries.choose(claimed, hand(9), T0) == Chosen(claimed)
    assert tries.may_claim(hand(1, 2, 3), T0)


def test_one_starts_when_those_beside_it_are_put_back_and_nothing_is_claimed_until_it_has_ended() -> None:
    tries = LastTries(3)
    first, last, other = served(1, 0), served(2, 3), served(3, 3)
    assert tries.choose([first, last, other], {}, T0) == Chosen([], [first, other], T0)
    assert tries.take(hand(1, 2, 3)) is None
    assert not tries.may_claim({2: last}, T0)
    assert tries.take({2: last}) is last
    assert tries.take({2: last}) is None, "it is started once"
    assert not tries.may_claim({2: last}, T0)
    assert tries.may_claim({}, T0)


def test_beside_others_it_is_put_back_and_after_a_while_nothing_else_is_claimed() -> None:
    tries = LastTries(3)
    first, last = served(1, 0), served(2, 3)
    assert tries.choose([first, last], hand(9), T0) == Chosen([first], [last], T0 + SECOND)
    assert tries.may_claim(hand(9), T0 + 9 * SECOND)
    assert tries.choose([last], hand(9), T0 + 9 * SECOND) == Chosen([], [last], T0 + 10 * SECOND)
    assert not tries.may_claim(hand(9), T0 + 10 * SECOND)
    assert tries.may_claim({}, T0 + 10 * SECOND)
    assert tries.choose([last], {}, T0 + 10 * SECOND) == Chosen([], [], T0 + 10 * SECOND)
    assert tries.withdraw() is last
    assert tries.withdraw() is None


def test_a_later_try_of_the_same_stream_does_not_hold_up_the_others() -> None:
    tries = LastTries(10)
    last = served(5, attempt=10)
    assert tries.choose([last], {}, 0).start == []
    assert tries.take({5: last}) is last
    assert not tries.may_claim({5: last}, 1)
    again = served(5, attempt=0)
    assert tries.may_claim({5: again}, 2), "it is an ordinary delivery of the stream that had its last try"


def test_a_stream_that_was_put_back_and_never_comes_again_is_forgotten() -> None:
    tries, other = LastTries(10), served(6, attempt=0)
    assert tries.choose([served(5, attempt=10)], {6: other}, 0).put_back
    assert not tries.may_claim({6: other}, 20 * SECOND)
    assert tries.may_claim({6: other}, 80 * SECOND)
    assert tries.choose([served(5, attempt=10)], {6: other}, 100 * SECOND).put_back
    assert tries.choose([served(7, attempt=0)], {}, 111 * SECOND).put_back == ()
    assert tries.may_claim({6: other}, 112 * SECOND), "nothing was in hand, and it did not come"
