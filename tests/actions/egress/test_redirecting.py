"""What a redirect carries along, and where it may not lead."""

import pytest

from noonbell.actions.egress.hosts import read_url
from noonbell.actions.egress.redirecting import Step, next_step, redirects_to
from noonbell.errors import EgressFailedError, EgressRefusedError

HEADERS = (
    ("Authorization", "Bearer s"), ("Cookie", "s"), ("X-Api-Key", "s"), ("webhook-signature", "s"),
    ("Content-Type", "text/plain"), ("User-Agent", "Noonbell"), ("Accept", "*/*"),
)  # fmt: skip


def step(url: str, method: str = "GET", body: bytes | None = None) -> Step:
    return Step(method, read_url(url), HEADERS, body)


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [
        (301, "POST", "GET"), (302, "POST", "GET"), (303, "POST", "GET"), (303, "PUT", "GET"), (303, "HEAD", "HEAD"),
        (301, "PUT", "PUT"), (307, "POST", "POST"), (308, "POST", "POST"), (308, "GET", "GET"),
    ],
)  # fmt: skip
def test_the_method_after_a_redirect(status: int, method: str, expected: str) -> None:
    following = next_step(step("https://a.example/x", method, b"body"), status, "/y", read=read_url)
    assert following.method == expected
    assert following.body == (None if (method, expected) in {("POST", "GET"), ("PUT", "GET")} else b"body")
    assert ("Content-Type" in dict(following.headers)) == (following.body is not None)
    assert following.target.url == "https://a.example/y"
    assert dict(following.headers)["Authorization"] == "Bearer s"


@pytest.mark.parametrize(
    "place",
    [
        "https://b.example/",
        "https://a.example:8443/",
        "https://www.a.example/",
        "//b.example/x",
        "https://u:p@b.example/",
    ],
)
def test_another_origin_gets_harmless_headers_only(place: str) -> None:
    following = next_step(step("https://a.example/"), 302, place, read=read_url)
    assert [name for name, _ in following.headers] == ["User-Agent", "Accept"]
    assert following.target.userinfo is None


def test_the_same_host_may_turn_to_https_and_keep_its_headers() -> None:
    following = next_step(step("http://a.example/", "POST", b"x"), 308, "https://a.example/", read=read_url)
    assert (following.headers, following.body) == (HEADERS, b"x")


@pytest.mark.parametrize("status", [307, 308])
def test_a_body_is_not_carried_to_another_origin(status: int) -> None:
    with pytest.raises(EgressFailedError, match="body to another origin") as caught:
        next_step(step("https://a.example/", "POST", b"x"), status, "https://b.example/", read=read_url)
    assert caught.value.kind == "redirect"


def test_https_does_not_lead_to_http() -> None:
    with pytest.raises(EgressFailedError, match="from https to http"):
        next_step(step("https://a.example/"), 302, "http://a.example/", read=read_url)


@pytest.mark.parametrize(
    "place",
    ["file:///etc/passwd", "gopher://a.example/", "https://127.1/", "https://[::1/", "\\\\b\x00", "data:,1"],
)
def test_places_that_are_no_http_url_are_refused(place: str) -> None:
    with pytest.raises((EgressFailedError, EgressRefusedError)):
        next_step(step("https://a.example/"), 302, place, read=read_url)


@pytest.mark.parametrize(("status", "expected"), [(302, "/y"), (308, "/y"), (200, None), (304, None), (300, None)])
def test_which_answers_redirect(status: int, expected: str | None) -> None:
    assert redirects_to(status, (("location", "/y"),)) == expected
    assert redirects_to(status, ()) is None
