from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from noonbell.actions.message import PLACEHOLDERS, check_message, check_template, message_of
from noonbell.errors import ScheduleInvalidError
from tests.actions.conftest import MIDNIGHT, start_at, stored_with

ACTION = {"kind": "message", "to": "inbox"}


def event_of(payload: Any, *, action: dict[str, Any] | None = None, **names: str) -> dict[str, Any]:
    message = message_of(stored_with(action or ACTION, payload, **names), start_at(), 5)
    decoded: dict[str, Any] = msgspec.json.decode(message.body)
    return decoded


def encoded(payload: Any) -> str:
    return msgspec.json.encode(payload).decode()


def test_the_message_is_a_cloud_event_around_the_template() -> None:
    message = message_of(stored_with(ACTION, {"type": "reminder", "text": "Stand up"}), start_at(), 5)
    assert (message.sid, message.lane, message.target, message.created_at) == (7, "post", "inbox", 5)
    assert message.message_id == f"abc:scheduled:{MIDNIGHT}"
    assert msgspec.json.decode(message.body) == {
        "specversion": "1.0",
        "id": f"abc:scheduled:{MIDNIGHT}",
        "source": "/noonbell/schedules/abc",
        "type": "noonbell.message",
        "subject": "morning",
        "time": "2024-01-01T00:00:00Z",
        "datacontenttype": "application/json",
        "kind": "scheduled",
        "attempt": 1,
        "scheduledfor": "2024-01-01T00:00:00Z",
        "data": {
            "id": f"abc:scheduled:{MIDNIGHT}",
            "timestamp": "2024-01-01T00:00:00Z",
            "type": "reminder",
            "text": "Stand up",
            "source": {"channel": "scheduler", "connector_id": "abc"},
        },
    }


def test_channel_and_connector_are_ours_and_the_rest_of_the_source_stays() -> None:
    data = event_of({"source": {"channel": "mine", "connector_id": "x", "room": 5}})["data"]
    assert data["source"] == {"channel": "scheduler", "connector_id": "abc", "room": 5}


def test_an_id_and_a_timestamp_of_the_template_stay() -> None:
    data = event_of({"id": "fixed", "timestamp": None})["data"]
    assert (data["id"], data["timestamp"]) == ("fixed", None)


def test_the_type_may_be_chosen() -> None:
    assert event_of({}, action={**ACTION, "type": "com.example.{{x}}"})["type"] == "com.example.{{x}}"


def test_placeholders_are_filled_in_wherever_a_text_stands() -> None:
    payload = {"text": "{{ name }}: {{scheduled_for}} 100% {x} %s", "deep": [{"run": "{{run_id}}"}, "{{schedule_id}}"]}
    data = event_of(payload, schedule_id='a "b"/ü', name="ne%(w)s\n")["data"]
    assert data["text"] == "ne%(w)s\n: 2024-01-01T00:00:00Z 100% {x} %s"
    assert data["deep"] == [{"run": f'a "b"/ü:scheduled:{MIDNIGHT}'}, 'a "b"/ü']


def test_the_source_is_an_address() -> None:
    assert event_of({}, schedule_id="a b/ü")["source"] == "/noonbell/schedules/a%20b%2F%C3%BC"


def test_fractions_of_a_second_and_repeats_are_told() -> None:
    stored = stored_with(ACTION, {})
    message = message_of(stored, start_at(MIDNIGHT + 250_000, kind="manual", attempt=3), 5)
    event = msgspec.json.decode(message.body)
    assert (event["time"], event["kind"], event["attempt"]) == ("2024-01-01T00:00:00.250000Z", "manual", 3)
    assert event["id"] == message.message_id == f"abc:manual:{MIDNIGHT + 250_000}"


_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_scalar = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
_json = st.recursive(
    _scalar | _text | st.sampled_from(["{{name}}!", "a{{run_id}}{{name}}"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=12,
)


def filled(value: Any, gaps: dict[str, str]) -> Any:
    """What the template means, the slow way."""
    if isinstance(value, dict):
        return {key: filled(inner, gaps) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, gaps) for inner in value]
    if isinstance(value, str):
        for name in gaps:
            value = value.replace("{{" + name + "}}", "\0" + name + "\0")
        for name, gap in gaps.items():
            value = value.replace("\0" + name + "\0", gap)
    return value


@given(
    template=st.dictionaries(st.text("abc%{}", max_size=5), _json),
    name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20),
    schedule_id=st.text('ab/"\\ü%{}☃', min_size=1, max_size=8),
)
def test_any_template_says_what_it_says(template: dict[str, Any], name: str, schedule_id: str) -> None:
    try:
        check_template(encoded(template))
    except ScheduleInvalidError:
        reject()  # a text with something in double braces, by chance
    run_id = f"{schedule_id}:scheduled:{MIDNIGHT}"
    gaps = dict(zip(PLACEHOLDERS, ("2024-01-01T00:00:00Z", schedule_id, run_id, name), strict=True))
    expected = {"id": run_id, "timestamp": "2024-01-01T00:00:00Z"} | filled(template, gaps)
    expected["source"] = {"channel": "scheduler", "connector_id": schedule_id}
    assert event_of(template, schedule_id=schedule_id, name=name)["data"] == expected


@pytest.mark.parametrize(
    ("payload", "field", "reason"),
    [
        (None, "payload", "must be an object"),
        ([1], "payload", "must be an object"),
        ("text", "payload", "must be an object"),
        ({"source": "me"}, "payload.source", "must be an object"),
        ({"a": [{"b": "{{nam}}"}]}, "payload.a[0].b", "'nam'"),
        ({"a": "{{}}"}, "payload.a", "the placeholder ''"),
        ({"a": "{{kind}}"}, "payload.a", "{{scheduled_for}}"),
    ],
)
def test_what_is_no_template_is_refused(payload: Any, field: str, reason: str) -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        check_template(None if payload is None else encoded(payload))
    assert refused.value.field == field
    assert reason in refused.value.reason


def test_a_template_without_end_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(ScheduleInvalidError, match="more than 50 deep"):
        check_template(encoded({"text": deep}))


@pytest.mark.parametrize(
    ("action", "field"),
    [
        ({"to": 5}, "action.to"),
        ({"to": " "}, "action.to"),
        ({"type": ""}, "action.type"),
        ({"target": "x"}, "action.target"),
        ({"to": "a\0"}, "action.to"),
        ({"to": "channel:ops", "type": "flush"}, "action.to"),
    ],
)
def test_what_is_no_message_action_is_refused(action: dict[str, Any], field: str) -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        check_message({"kind": "message", **action})
    assert refused.value.field == field


def test_a_message_goes_to_the_default_target_unless_told_otherwise() -> None:
    assert check_message({"kind": "message"}) == {"kind": "message", "to": "default"}
