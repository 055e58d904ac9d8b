"""Genuine, recent and new messages get through; others are told why not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.errors import (
    ReceiveError,
    SigningKeyError,
    WebhookInProgressError,
    WebhookMalformedError,
    WebhookRefusedError,
    WebhookRepeatedError,
    WebhookTooLargeError,
    WebhookUnavailableError,
)
from noonbell.receive import MemorySeen, Receiver
from tests.receive.messages import KEY, NOW, OTHER_KEY, signed

BODY = b'{"n": 1}'


def receiver(*keys: str, now: float = NOW, longest_body: int = 100) -> Receiver:
    return Receiver(keys or KEY, clock=lambda: now, longest_body=longest_body)


def test_a_genuine_message() -> None:
    headers = {**signed(), "Noonbell-Scheduled-For": "2026-09-21T14:00:00Z", "Noonbell-Attempt": "2"}
    message = receiver().verify(headers, BODY)
    assert (message.message_id, message.run_id, message.attempt) == ("job:scheduled:1", "job:scheduled:1", 2)
    assert message.sent_at == datetime.fromtimestamp(NOW, UTC)
    assert message.scheduled_for == datetime(2026, 9, 21, 14, tzinfo=UTC)
    assert message.json() == {"n": 1}
    assert "n" not in repr(message).partition("body")[2]


def test_raw_headers_in_any_case() -> None:
    raw = [(name.upper().encode(), value.encode()) for name, value in signed().items()]
    assert receiver().verify(raw, BODY).message_id == "job:scheduled:1"


def test_hints_that_make_no_sense_are_left_out() -> None:
    for moment, attempt in (("tomorrow", "x"), ("2026-09-21T14:00:00", "-1"), ("", "٣")):
        headers = {**signed(), "noonbell-scheduled-for": moment, "noonbell-attempt": attempt}
        message = receiver().verify(headers, BODY)
        assert (message.scheduled_for, message.attempt) == (None, None)


def test_old_and_new_keys_both_count_while_a_key_is_replaced() -> None:
    old, new = signed(key=OTHER_KEY), signed(key=KEY)
    both = {**new, "webhook-signature": f"v2,x {old['webhook-signature']} {new['webhook-signature']} v1a,zzz junk"}
    assert receiver(KEY).verify(both, BODY).body == BODY
    assert receiver(OTHER_KEY).verify(both, BODY).body == BODY
    assert receiver(KEY, OTHER_KEY).verify(old, BODY).body == BODY
    with pytest.raises(WebhookRefusedError, match="no signature matches"):
        receiver(KEY).verify(old, BODY)


@given(
    st.binary(max_size=100),
    st.sampled_from(["body", "webhook-id", "webhook-timestamp", "webhook-signature"]),
    st.data(),
)
@settings(deadline=None)
def test_any_change_is_noticed(body: bytes, field: str, data: st.DataObject) -> None:
    text = body.decode("latin-1")
    headers = signed(text)
    body = text.encode()
    taking = receiver(longest_body=1000)
    assert taking.verify(headers, body).body == body
    if field == "body":
        changed = data.draw(st.binary(max_size=100).filter(lambda other: other != body))
        with pytest.raises(WebhookRefusedError):
            taking.verify(headers, changed)
    else:
        at = data.draw(st.integers(0, len(headers[field]) - 1))
        sign = data.draw(st.sampled_from("0123456789abcdefXYZ+/, .:"))
        changed_text = headers[field][:at] + sign + headers[field][at + 1 :]
        if changed_text != headers[field]:
            with pytest.raises(ReceiveError) as caught:
                taking.verify({**headers, field: changed_text}, body)
            assert caught.value.status in {400, 401}


def test_the_same_bytes_cannot_be_read_as_another_message() -> None:
    # what was signed as id "a" and a body that begins with a number could else come as id "a.1790000000"
    headers = signed(f"{NOW:.0f}.rest", message_id="a")
    shifted = {**headers, "webhook-id": f"a.{headers['webhook-timestamp']}", "webhook-timestamp": f"{NOW:.0f}"}
    with pytest.raises(WebhookMalformedError, match="full stop"):
        receiver().verify(shifted, b"rest")


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("value", [None, "", "  "])
def test_missing_headers(missing: str, value: str | None) -> None:
    headers = {name: text for name, text in signed().items() if name != missing}
    if value is not None:
        headers[missing] = value
    with pytest.raises(WebhookMalformedError, match=f"{missing} is missing") as caught:
        receiver().verify(headers, BODY)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "1790000000.0"},
        {"webhook-timestamp": "-1790000000"},
        {"webhook-timestamp": "01790000000"},
        {"webhook-timestamp": "٣٣"},
        {"webhook-timestamp": "9" * 5000},
        {"webhook-id": "a" * 513},
        {"webhook-id": "bé"},
        {"webhook-id": "a\x00b"},
    ],
)
def test_malformed_headers(change: dict[str, str]) -> None:
    with pytest.raises(WebhookMalformedError):
        receiver().verify({**signed(), **change}, BODY)


def test_a_header_that_is_there_twice_is_refused() -> None:
    raw = [(name.encode(), value.encode()) for name, value in signed().items()]
    with pytest.raises(WebhookMalformedError, match="webhook-id is given twice"):
        receiver().verify([*raw, (b"Webhook-Id", b"other")], BODY)


@pytest.mark.parametrize(("off", "fits"), [(300, True), (-300, True), (301, False), (-301, False)])
def test_timestamps_within_the_tolerance(off: int, fits: bool) -> None:
    taking = receiver(now=NOW + off)
    if fits:
        assert taking.verify(signed(), BODY).body == BODY
    else:
        with pytest.raises(WebhookRefusedError, match=r"301 s (ago|from now); 300 s are allowed") as caught:
            taking.verify(signed(), BODY)
        assert caught.value.status == 401


def test_a_long_body_is_refused_before_it_is_hashed() -> None:
    with pytest.raises(WebhookTooLargeError, match="more than 100 bytes") as caught:
        receiver().verify({}, b"x" * 101)
    assert caught.value.status == 413


async def test_a_message_is_handled_once() -> None:
    taking = receiver()
    message = taking.verify(signed(), BODY)
    async with taking.once(message):
        with pytest.raises(WebhookInProgressError) as busy:
            await taking.begin(message)
        assert busy.value.status == 409
    with pytest.raises(WebhookRepeatedError) as done:
        async with taking.once(message):
            pytest.fail("it was handled twice")
    assert done.value.status == 200
    # a later attempt of the same run has another timestamp and the same id
    later = Receiver(KEY, store=taking._seen, clock=lambda: NOW + 1000)
    with pytest.raises(WebhookRepeatedError):
        await later.begin(later.verify(signed(at=NOW + 1000), BODY))


async def test_a_message_that_failed_is_handled_again() -> None:
    taking = receiver()
    message = taking.verify(signed(), BODY)
    with pytest.raises(RuntimeError, match="no luck"):
        async with taking.once(message):
            raise RuntimeError("no luck")
    async with taking.once(message):
        pass
    with pytest.raises(WebhookRepeatedError):
        await taking.begin(message)


@pytest.mark.parametrize("keys", [[], "", "whsec_", "whsec_!!!", ["whsec_" + "A" * 20], "whsec_" + "A" * 100, [None]])
def test_keys_that_are_none(keys: str | list[str]) -> None:
    with pytest.raises(SigningKeyError) as caught:
        Receiver(keys)
    assert "AAAA" not in str(caught.value)


def test_settings_that_would_let_a_message_through_twice() -> None:
    with pytest.raises(ValueError, match="longer ttl"):
        Receiver(KEY, store=MemorySeen(ttl=timedelta(minutes=9)))
    with pytest.raises(ValueError, match="tolerance"):
        Receiver(KEY, timedelta(0))
    assert repr(Receiver([KEY, OTHER_KEY])) == "Receiver(2 keys)"


class Forgetful(MemorySeen):
    """A memory whose disk is full when the work is done."""

    async def finish(self, message_id: str, now: float) -> None:
        raise WebhookUnavailableError("the disk is full")


async def test_what_was_handled_but_not_noted_is_not_handled_again_at_once(caplog: pytest.LogCaptureFixture) -> None:
    taking = Receiver(KEY, store=Forgetful(), clock=lambda: NOW)
    message = taking.verify(signed(), BODY)
    async with taking.once(message):
        pass
    assert "job:scheduled:1 was handled, but the disk is full" in caplog.text
    with pytest.raises(WebhookInProgressError):
        await taking.begin(message)
