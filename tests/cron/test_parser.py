"""The parser beyond the conformance vectors: what an error carries, what is refused unread, what is suggested."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.cron import FIELD_NAMES, FIELD_RANGES, CronExpression, parse, parse_field
from noonbell.cron import parser as parser_module
from noonbell.errors import CronError, FieldParseError, InvalidCronExpressionError, NoonbellError
from tests.cron.cases import field_texts
from tests.cron.oracle import field_values
from tests.effort import examples


def refused(text: Any) -> InvalidCronExpressionError:
    with pytest.raises(InvalidCronExpressionError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day"),
        ("* * * 13 *", "month"),
        ("* * * * 7", "weekday"),
        ("* * * *", "expression"),
        ("", "expression"),
        ("0 0 30 2 *", "expression"),
        ("0 0 31 2,4,6,9,11 *", "expression"),
    ],
)
def test_the_error_says_what_and_where(text: str, field: str) -> None:
    error = refused(text)
    assert (error.expression, error.field) == (text, field)
    assert str(error) == f'Invalid cron expression "{text}": {field} field {error.reason}'
    assert error.details == {"expression": text, "field": field, "reason": error.reason}
    assert isinstance(error, CronError)
    assert isinstance(error, NoonbellError)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("*/15 * * * *", "0,15,30,45 * * * *"),
        ("@daily", "0 0 * * *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * jan *", "0 0 * 1 *"),
        ("0 22-2 * * *", None),
        ("@reboot", None),
        ("0 0 L * *", None),
        ("60 * * * *", None),
        ("0 0 31 2 *", None),
    ],
)
def test_another_dialect_gets_a_suggestion_that_parses(text: str, suggestion: str | None) -> None:
    error = refused(text)
    if text == "0 22-2 * * *":
        assert error.suggestion is not None
        assert parse(error.suggestion).hours == {22, 23, 0, 1, 2}
        return
    assert error.suggestion == suggestion
    if suggestion is not None:
        assert parse(suggestion).text == suggestion


def test_errors_survive_pickling() -> None:
    error = refused("*/15 * * * *")
    twin = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (str(twin), twin.expression, twin.field, twin.reason, twin.suggestion) == (
        str(error),
        error.expression,
        error.field,
        error.reason,
        error.suggestion,
    )


@pytest.mark.parametrize("value", [None, 5, b"* * * * *", ["* * * * *"], 1.5])
def test_what_is_not_text_is_refused(value: object) -> None:
    error = refused(value)
    assert error.field == "expression"
    assert type(value).__name__ in error.reason


def test_long_texts_are_refused_unparsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a field of a long text was read")

    just_fits = "0" * 991 + " * * * *"
    assert len(just_fits) == 999
    assert parse(just_fits).minutes == {0}
    assert parse(just_fits + " ").minutes == {0}
    monkeypatch.setattr(parser_module, "field_mask", refuse)
    monkeypatch.setattr(parser_module, "translate", refuse)
    for text, blamed in (
        (just_fits + "  ", "minute"),
        (" " * 1001, "expression"),
        ("* * * * 1" + ",1" * 10**6, "weekday"),
    ):
        error = refused(text)
        assert error.field == blamed
        assert "1000" in error.reason.replace(",", "")
        assert error.expression == text
        assert len(str(error)) < 400


def test_numbers_of_a_thousand_digits_are_out_of_range() -> None:
    assert refused("9" * 900 + " * * * *").field == "minute"
    with pytest.raises(FieldParseError):
        parse_field("9" * 100_000, "minute")


@pytest.mark.parametrize("name", FIELD_NAMES)
def test_a_star_is_the_whole_range(name: str) -> None:
    low, high = FIELD_RANGES[name]
    assert parse_field("*", name) == set(range(low, high + 1))
    assert parse_field(f"{low}-{high}", name) == parse_field("*", name)


@given(st.data(), st.sampled_from(range(5)))
def test_parse_field_gives_the_values(data: st.DataObject, position: int) -> None:
    name = FIELD_NAMES[position]
    text = data.draw(field_texts(*FIELD_RANGES[name]))
    found = parse_field(text, name)
    assert isinstance(found, frozenset)
    assert found == field_values(text, position)


@pytest.mark.parametrize(
    "text", ["", "x", "5-3", "*/2", "1,,2", "1--2", "-1", "+1", "²", " 1", "1 ", "*,1", "99", "1\n"]
)
def test_parse_field_refuses_with_its_own_error(text: str) -> None:
    for name in FIELD_NAMES:
        with pytest.raises(FieldParseError) as caught:
            parse_field(text, name)
        assert (caught.value.field_value, caught.value.field_name) == (text, name)
        assert caught.value.details == {"fieldValue": text, "fieldName": name}


def test_parse_wraps_the_error_of_the_field() -> None:
    error = refused("* 5-3 * * *")
    assert isinstance(error.__cause__, FieldParseError)
    assert (error.__cause__.field_name, error.__cause__.field_value) == ("hour", "5-3")


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(FieldParseError, match="second") as caught:
        parse_field("*", "second")
    assert caught.value.field_name == "second"


cron_like = st.text(st.sampled_from("0123456789*,-/ \t?#LW@jan"), max_size=30)


@given(st.one_of(st.text(max_size=60), cron_like, st.lists(cron_like, min_size=5, max_size=5).map(" ".join)))
@settings(max_examples=examples(250))
def test_any_text_parses_or_is_refused_as_declared(text: str) -> None:
    outcome: CronExpression | InvalidCronExpressionError
    try:
        outcome = parse(text)
    except InvalidCronExpressionError as error:
        outcome = error
    if isinstance(outcome, InvalidCronExpressionError):
        assert outcome.expression == text
        assert outcome.field in {*FIELD_NAMES, "expression"}
    else:
        assert outcome.text == text
        fields = text.split()
        assert len(fields) == 5
        assert outcome.minutes == field_values(fields[0], 0)
