"""References are found, checked and followed; values cannot break out of their place."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.actions.secrets.references import Kind, Template, fill_tree, names_in
from noonbell.errors import SecretReferenceError, SecretUnknownError

texts = st.text(st.characters(exclude_categories=["Cs"]))


def fill(text: str, kind: Kind = "text", **values: str) -> str:
    return Template(text, kind, "the place").fill(values)


def test_names_are_found_and_values_put_in() -> None:
    template = Template("a ${secrets.ONE} b ${secrets.two_2}${secrets.ONE}", "text", "the body")
    assert template.names == {"ONE", "two_2"}
    assert template.fill({"ONE": "1", "two_2": "2", "other": "3"}) == "a 1 b 21"


@given(texts)
def test_an_escaped_text_comes_out_as_it_was(text: str) -> None:
    # the sign before ${ could itself be a $, which would make an escape of it
    escaped = text.replace("${", "$${")
    if "$${" not in text:
        assert fill(escaped) == text


def test_escapes() -> None:
    assert fill("$${secrets.A}") == "${secrets.A}"
    assert fill("$$${secrets.A}", A="x") == "$${secrets.A}"
    assert fill("$ $1 {a} $$") == "$ $1 {a} $$"
    assert fill("${secrets.A}", A="${secrets.B} $${") == "${secrets.B} $${"


@pytest.mark.parametrize(
    "text",
    [
        "${",
        "${}",
        "${secrets}",
        "${secrets.}",
        "${secrets.1A}",
        "${secret.A}",
        "${ secrets.A }",
        "${secrets.A",
        "${secrets.a-b}",
        "${env.A}",
        "${secrets.Ä}",
        "${secrets." + "A" * 65 + "}",
    ],
)
def test_what_is_no_reference_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(SecretReferenceError, match="the header X-Key") as caught:
        Template(text, "header", "the header X-Key")
    assert caught.value.place == "the header X-Key"


def test_an_unknown_name_is_told_with_its_place_and_nothing_is_filled() -> None:
    template = Template("${secrets.A}/${secrets.B}", "text", "the body")
    with pytest.raises(SecretUnknownError, match='Secret not found: "B", which the body refers to') as caught:
        template.fill({"A": "hunter2"})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SecretUnknownError, match='"A"'):
        template.check([])
    template.check(["A", "B"])


@given(texts)
def test_a_value_cannot_leave_its_part_of_a_url(value: str) -> None:
    url = urlsplit(fill("https://h.example/a/${secrets.S}/b?q=${secrets.S}&r=1#f", "url", S=value))
    assert (url.scheme, url.netloc, url.fragment) == ("https", "h.example", "f")
    assert url.path.count("/") == 3
    assert parse_qs(url.query, keep_blank_values=True) == {"q": [value], "r": ["1"]}


def test_a_url_may_begin_with_a_secret() -> None:
    hook = "https://hooks.example/services/T0/B0/abc"
    assert fill("${secrets.HOOK}", "url", HOOK=hook) == hook
    assert fill("${secrets.HOOK}/x?y=${secrets.K}", "url", HOOK=hook, K="a/b") == hook + "/x?y=a%2Fb"
    assert fill("https://u:${secrets.P}@h.example/", "url", P="p@/:") == "https://u:p%40%2F%3A@h.example/"
    for value in ("ftp://h.example", "h.example", "https://h.example/ x", "https://h\n.example"):
        with pytest.raises(SecretReferenceError) as caught:
            fill("${secrets.HOOK}", "url", HOOK=value)
        assert value not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://${secrets.S}/",
        "https://${secrets.S}",
        "https://a.${secrets.S}.example/x",
        "https://u@${secrets.S}/",
        "https://h.example:${secrets.S}/",
        "http${secrets.S}://h.example/",
        "h.example/${secrets.S}",
        "${secrets.A}${secrets.S}/x",
        "https://h.example${secrets.S}?x",
    ],
)
def test_a_secret_in_the_host_is_refused(url: str) -> None:
    with pytest.raises(SecretReferenceError, match="host"):
        Template(url, "url", "the URL")


@given(texts)
def test_a_value_stays_within_its_json_string(value: str) -> None:
    text = '{"a": "x${secrets.S}\\"y", "b": [1, "${secrets.S}"]}'
    assert json.loads(fill(text, "json", S=value)) == {"a": f'x{value}"y', "b": [1, value]}


@pytest.mark.parametrize(
    "text", ['{"a": ${secrets.S}}', "${secrets.S}", '{"a": "b", ${secrets.S}: 1}', '"\\${secrets.S}"']
)
def test_json_takes_a_value_only_within_quotes(text: str) -> None:
    with pytest.raises(SecretReferenceError, match="quotes"):
        Template(text, "json", "the body")


@given(texts)
def test_a_value_stays_within_its_form_field(value: str) -> None:
    assert parse_qs(fill("a=${secrets.S}&b=1", "form", S=value), keep_blank_values=True) == {"a": [value], "b": ["1"]}


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "a\x7f", "schlüssel€"])
def test_a_header_takes_no_line_ends(value: str) -> None:
    with pytest.raises(SecretReferenceError) as caught:
        fill("Bearer ${secrets.S}", "header", S=value)
    assert value not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_trees() -> None:
    tree: dict[str, Any] = {
        "${secrets.K}": 1,
        "list": ["${secrets.A}", 2, None, {"deep": "x${secrets.B}"}],
        "plain": True,
    }
    assert names_in(tree, "the body") == {"K", "A", "B"}
    filled = fill_tree(tree, "the body", {"K": "k", "A": '"', "B": "b"})
    assert filled == {"k": 1, "list": ['"', 2, None, {"deep": "xb"}], "plain": True}
    with pytest.raises(SecretUnknownError, match=r"the body\.list\[3\]\.deep") as caught:
        fill_tree(tree, "the body", {"K": "k", "A": "a"})
    assert caught.value.name == "B"
