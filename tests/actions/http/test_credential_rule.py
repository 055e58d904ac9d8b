"""The rule that says what of a request is a credential: names of headers and parameters, and places in a URL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonbell.actions.http import credentials
from noonbell.actions.http.credential_rule import (
    HIDDEN,
    hidden_header,
    hidden_url,
    is_credential_header,
    is_credential_parameter,
)
from noonbell.actions.http.credentials import KEPT
from noonbell.errors import ScheduleInvalidError

CREDENTIALS = """
    Authorization Proxy-Authorization Cookie Set-Cookie X-Api-Key X-Auth-Token Private-Token Api-Key ApiKey
    X-Access-Token X-Csrf-Token X-CSRFToken X-XSRF-TOKEN X-MBX-APIKEY DD-API-KEY Ocp-Apim-Subscription-Key
    X-Functions-Key X-Auth-Key X-Goog-Api-Key X-Shopify-Access-Token X-GitLab-Token X-Vault-Token X-Amz-Security-Token
    X-Hub-Signature-256 X-Client-Secret X-Password X-Credential X-Key X-Session-Id webhook-signature X-Authorization
    Authentication X-JWT
""".split()
PARAMETERS = """
    api_key apikey apiKey key access_token accessToken token auth_token sig signature X-Amz-Signature X-Amz-Credential
    password passwd pwd client_secret auth secret code sign
""".split()
HARMLESS = """
    Accept Accept-Encoding Accept-Language Content-Type Content-Length User-Agent Host Idempotency-Key X-Request-Id
    X-Correlation-Id ETag If-Match If-None-Match Cache-Control Date Server Vary Location Origin Referer Retry-After
    Traceparent X-Forwarded-For WWW-Authenticate Proxy-Authenticate Access-Control-Allow-Credentials Surrogate-Key
    Sec-WebSocket-Key X-OAuth-Scopes X-RateLimit-Remaining-Tokens Strict-Transport-Security Content-Security-Policy
    Authority X-Author Webhook-Id Webhook-Timestamp Noonbell-Attempt Noonbell-Scheduled-For
""".split()
HARMLESS_PARAMETERS = "page q limit sort_key partition_key max_tokens keyword author design assign country_code".split()

URLS = [
    ("https://{}@example.org/", "a token as the user"),
    ("https://{}:@example.org/", "and no password"),
    ("https://{}:x-oauth-basic@example.org/", "and a stand-in for a password"),
    ("https://ann:{}@example.org/", "a password"),
    ("https://ann:a@{}@example.org/", "a password with an at sign"),
    ("https://example.org/?api_key={}", "a parameter"),
    ("https://example.org?a=1&Access_Token={}&b=2", "among others"),
    ("https://example.org/?a=1;sig={}&b=2", "behind a semicolon"),
    ("https://example.org/?ap%69_key={}", "its name encoded"),
    ("https://example.org/?to=https://example.com/?token={}", "in a URL within"),
    ("https://example.org/#access_token={}", "in the fragment"),
    ("${{secrets.BASE}}/?token={}", "behind a secret"),
]


@pytest.mark.parametrize("name", CREDENTIALS)
def test_headers_that_hold_credentials(name: str) -> None:
    for written in (name, name.lower(), name.upper()):
        assert is_credential_header(written)
        assert hidden_header(written, "plain-value") == HIDDEN
    assert hidden_header(name, "Bearer plain-value") == f"Bearer {HIDDEN}"


@pytest.mark.parametrize("name", HARMLESS)
def test_headers_that_hold_none(name: str) -> None:
    for written in (name, name.lower(), name.upper()):
        assert not is_credential_header(written)
        assert hidden_header(written, "plain-value") == "plain-value"


def test_parameters() -> None:
    assert [name for name in (*PARAMETERS, *CREDENTIALS) if not is_credential_parameter(name)] == []
    assert [name for name in (*HARMLESS_PARAMETERS, *HARMLESS) if is_credential_parameter(name)] == []


WORDS = st.sampled_from("token secret password cookie signature credential auth apikey".split())
AROUND = st.text("abcdefghijklmnopqrstuvwxyz0123456789", max_size=8)


@given(before=AROUND, word=WORDS, after=AROUND, between=st.sampled_from("-_."), style=st.sampled_from("lut"))
def test_a_word_of_the_rule_counts_wherever_it_stands(
    before: str, word: str, after: str, between: str, style: str
) -> None:
    name = between.join(part for part in (before, word, after) if part)
    name = {"l": name.lower(), "u": name.upper(), "t": name.title()}[style]
    assert is_credential_header(name)
    assert "plain-value" not in hidden_url(f"https://example.org/x?a=1&{name}=plain-value&b=2")


@given(st.text("https:/@?&;#=%.token ${}secrets", max_size=60))
def test_any_text_can_be_hidden_and_once_is_enough(url: str) -> None:
    once = hidden_url(url)
    assert hidden_url(once) == once
    assert credentials.shown_url(credentials.shown_url(url)) == credentials.shown_url(url)


@pytest.mark.parametrize(("url", "why"), URLS)
def test_credentials_in_urls(url: str, why: str) -> None:
    literal, reference = url.format("plain-value"), url.format("${secrets.T}")
    assert credentials.shown_url(literal) == hidden_url(literal), why
    for hidden in (hidden_url(literal), credentials.shown_url(literal), hidden_url(reference)):
        assert "plain-value" not in hidden
        assert "secrets.T" not in hidden
        assert HIDDEN in hidden
    if "a@" not in url:
        assert credentials.shown_url(reference) == reference, "a reference is no credential"
    veiled = credentials.veiled({"url": literal})
    assert KEPT in veiled["url"]
    assert "plain-value" not in veiled["url"]
    assert credentials.unveiled(veiled, {"url": literal}) == {"url": literal}


def test_all_of_several_are_found() -> None:
    action = {"url": "https://me:one1@h.example/?key=two2&key=tre3&q=ok", "query": {"token": ["for4", 5], "page": 6}}
    hidden = {"url": "https://me:***@h.example/?key=***&key=***&q=ok", "query": {"token": ["***", "***"], "page": 6}}
    assert credentials.shown(action) == hidden
    assert [one.place for one in credentials.written_out(action)] == [
        "query:token", "query:token#2", "url:password", "url:?key", "url:?key#2",
    ]  # fmt: skip
    assert credentials.unveiled(credentials.veiled(action), action) == action
    moved = credentials.replaced(action, "url:?key#2", "${secrets.KEY}")
    assert moved["url"] == "https://me:one1@h.example/?key=two2&key=${secrets.KEY}&q=ok"
    assert action["query"] == {"token": ["for4", 5], "page": 6}, "the original stays as it is"


def test_a_token_as_the_user_of_basic_auth() -> None:
    stored = {"url": "https://h.example/", "auth": {"basic": {"user": "sk_live", "password": ""}}}
    veiled = credentials.veiled(stored)
    assert veiled["auth"] == {"basic": {"user": KEPT, "password": ""}}
    assert credentials.unveiled(veiled, stored) == stored
    with pytest.raises(ScheduleInvalidError, match="no value is stored"):
        credentials.unveiled(veiled | {"auth": {"basic": {"user": KEPT, "password": "another"}}}, stored)


def test_dots_in_a_url_never_reach_another_host_and_are_never_stored() -> None:
    stored = {"url": "https://h.example/?token=plain-value"}
    with pytest.raises(ScheduleInvalidError, match="does not go to another host"):
        credentials.unveiled({"url": f"https://evil.example/?token={KEPT}"}, stored)
    with pytest.raises(ScheduleInvalidError, match="hides a value where none is stored"):
        credentials.unveiled({"url": f"https://h.example/?page={KEPT}"}, stored)


def test_what_a_secret_is_made_of_is_decoded() -> None:
    (one,) = credentials.written_out({"url": "https://h.example/?sig=a%2Fb%3D"})
    assert (one.value, one.label, one.suggestion) == ("a/b=", "sig", "SIG")


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("action.url", "https://plain@h.example/", "https://***@h.example/"),
        ("action.query.api_key", "plain", "***"),
        ("action.query.api_key", "${secrets.K}", "${secrets.K}"),
        ("action.query", {"sig": "plain", "a": 1}, {"sig": "***", "a": 1}),
        ("action.headers.X-Auth-Token", "plain", "***"),
        ("action.headers.x.token", "plain", "***"),
        ("action.headers.Idempotency-Key", "plain", "plain"),
        ("action.headers.X-Auth-Token", None, None),
        ("action.auth.basic.password", "plain", "***"),
        ("action.auth.basic", {"user": "plain", "password": ""}, {"user": "***", "password": ""}),
        ("name", "token", "token"),
    ],
)
def test_fields_of_a_plan(field: str, value: object, shown: object) -> None:
    assert credentials.shown_value(field, value) == shown
