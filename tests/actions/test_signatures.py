"""What is signed here is taken by the library of the specification's authors and by the receiver."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from noonbell.actions.signatures import Signer, SigningKey, in_use, new_key, rotated, wire_id
from noonbell.errors import SigningKeyError
from noonbell.receive import Receiver

SECOND = 1_000_000
MOMENT = 1_790_000_000 * SECOND


def headers(keys: list[str], body: bytes, sent_at: int) -> dict[str, str]:
    return Signer(keys).headers(run_id="job.7:scheduled:1", body=body, sent_at=sent_at, scheduled_for=MOMENT, attempt=3)


def test_the_headers_of_an_attempt() -> None:
    key = new_key(0).key
    found = headers([key], b"{}", MOMENT + 5 * SECOND + 999_999)
    signature = found.pop("webhook-signature")
    assert found == {
        "webhook-id": "job%2E7:scheduled:1",
        "Idempotency-Key": "job%2E7:scheduled:1",
        "webhook-timestamp": "1790000005",
        "Noonbell-Scheduled-For": "2026-09-21T14:13:20Z",
        "Noonbell-Attempt": "3",
    }
    assert signature.startswith("v1,")
    assert len(signature) == 3 + 44


@given(st.text())
def test_other_libraries_take_it(text: str) -> None:
    body = text.encode("utf-8", "replace")
    now = time.time_ns() // 1000
    keys = [new_key(0).key, new_key(0).key]
    found = headers(keys, body, now)
    for key in keys:
        Webhook(key).verify(body, found, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(new_key(0).key).verify(body, found, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(keys[0]).verify(body + b" ", found, json_parse=False)


@given(st.binary(), st.text(min_size=1, max_size=50, alphabet=st.characters(exclude_categories=["Cs"])))
def test_the_receiver_takes_it_and_knows_the_run(body: bytes, run_id: str) -> None:
    key = new_key(0).key
    found = Signer([key]).headers(run_id=run_id, body=body, sent_at=MOMENT, scheduled_for=MOMENT, attempt=1)
    message = Receiver(key, clock=lambda: MOMENT / SECOND).verify(found, body)
    assert message.run_id == run_id
    assert message.attempt == 1
    assert message.scheduled_for is not None
    assert message.scheduled_for.timestamp() == MOMENT / SECOND


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_ids_on_the_wire_stay_apart_and_hold_no_full_stop(one: str, two: str) -> None:
    assert (wire_id(one) == wire_id(two)) == (one == two)
    assert "." not in wire_id(one)
    assert wire_id(one).isascii()


def test_keys_are_replaced_without_a_gap() -> None:
    first = new_key(0)
    keys = rotated([first], 100 * SECOND, timedelta(seconds=50))
    assert [key.created_at for key in in_use(keys, 149 * SECOND)] == [100 * SECOND, 0]
    assert [key.created_at for key in in_use(keys, 150 * SECOND)] == [100 * SECOND]
    assert keys[0].expires_at is None
    assert keys[0].key != first.key
    # an end that was set is not put off by the next rotation
    third = rotated(keys, 120 * SECOND, timedelta(days=1))
    assert [key.expires_at for key in third][1:] == [(120 + 86400) * SECOND, 150 * SECOND]
    assert len(rotated(third, 130 * SECOND, timedelta(0))) == 1


def test_not_too_many_keys_sign_at_once() -> None:
    keys: tuple[SigningKey, ...] = (new_key(0),)
    for number in range(1, 5):
        keys = rotated(keys, number, timedelta(days=1))
    assert len(keys) == 5
    with pytest.raises(SigningKeyError, match="5 keys are in use"):
        rotated(keys, 9, timedelta(days=1))
    with pytest.raises(SigningKeyError, match="negative"):
        rotated(keys, 9, timedelta(seconds=-1))
    for count in (0, 6):
        with pytest.raises(SigningKeyError, match="1 to 5"):
            Signer([new_key(0).key] * count)


def test_keys_are_not_shown() -> None:
    key = new_key(7)
    assert key.key not in repr(key)
    assert key.key not in str([key])
    assert repr(Signer([key.key])) == "Signer(1 keys)"
    with pytest.raises(SigningKeyError) as caught:
        Signer([key.key[:-8] + "!"])
    assert key.key[6:20] not in str(caught.value)
