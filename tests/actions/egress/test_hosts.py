"""Hosts and URLs are read in one way, and everything that others might read differently is refused."""

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.actions.egress.hosts import read_host, read_port, read_url
from noonbell.errors import EgressRefusedError
from tests.effort import examples

ODD = [
    "0x7f000001", "0X7F000001", "0x7f.1", "0x7f.0.0.1", "127.0.0.0x1", "0x", "127.0x", "2130706433", "017700000001",
    "0177.0.0.1", "127.1", "127.0.1", "127.0.0.01", "127.0.0.1.", "127.0.0.1..", "127.0.0.1.1", "127.0.0.256", "127",
    "0", "00", "1.", ".1", "example.1", "example.0x7f", "4294967296", "99999999999999999999", "１２７.０.０.１",
    "１２７。０。０。１", "127。0。0。1", "①②⑦.⓪.⓪.①", "𝟭𝟮𝟳.𝟬.𝟬.𝟭", "٣.٣.٣.٣", "127.0.0.１", "127．0．0．1",
    "0ｘ7f000001",
]  # fmt: skip
MALFORMED = [
    "", " ", ".", "..", "a..b", ".example.com", "example..com", "exam ple.com", "example.com ", "\texample.com",
    "example.com\n", "exa\x00mple.com", "example.com\r\nX: y", "%31%32%37.0.0.1", "127%2e0%2e0%2e1", "fe80::1%eth0",
    "[fe80::1%25eth0]", "[::1", "::1]", "[]", "[127.0.0.1]", "[example.com]", "::ffff:127.1", "1::2::3", ":::",
    "[v1.x]", "-example.com", "example-.com", "exam!ple.com", "exam/ple", "exam\\ple", "user@example.com",
    "a" * 64 + ".com",
    "a." * 127 + "com", "x" * 2000, "exa<mple", "a,b", "\u202eexample.com", "exa\u00admple\u0000.com", "\ud800.com",
    "*",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_odd_notations_of_addresses_are_refused(text: str) -> None:
    with pytest.raises(EgressRefusedError):
        read_host(text)


@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(EgressRefusedError):
        read_host(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("example.com", "example.com"),
        ("EXAMPLE.com", "example.com"),
        ("example.com.", "example.com"),
        ("a_b.example.com", "a_b.example.com"),
        ("3com.example", "3com.example"),
        ("1.2.3.4.example", "1.2.3.4.example"),
        ("xn--mnchen-3ya.example", "xn--mnchen-3ya.example"),
        ("münchen.example", "xn--mnchen-3ya.example"),
        ("ＥＸＡＭＰＬＥ。com", "example.com"),
        ("localhost", "localhost"),
    ],
)
def test_names_come_out_in_lower_case_ascii(text: str, canonical: str) -> None:
    host = read_host(text)
    assert (host.text, host.address) == (canonical, None)


MAPPED = str(ipaddress.ip_address("::ffff:127.0.0.1"))  # newer versions of Python write the last part as IPv4


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:FFFF:7F00:1", MAPPED),
        ("[::ffff:127.0.0.1]", MAPPED),
        ("2606:4700::1111", "2606:4700::1111"),
    ],
)
def test_plain_addresses_are_known_as_such(text: str, canonical: str) -> None:
    host = read_host(text)
    assert host.address is not None
    assert host.text == canonical


@settings(max_examples=examples(300), deadline=None)
@given(st.text(max_size=40) | st.text(alphabet="0123456789abcdefxX.:[]%-_/@", max_size=30))
def test_whatever_is_read_is_read_the_same_again(text: str) -> None:
    try:
        host = read_host(text)
    except EgressRefusedError:
        return
    assert host.text.isascii()
    assert read_host(host.text) == host


@pytest.mark.parametrize("port", [0, -1, 65_536, 10**20, 80.0, "80", None, True])
def test_ports_are_whole_numbers_in_their_range(port: object) -> None:
    with pytest.raises(EgressRefusedError, match="from 1 to 65535"):
        read_port(port, "example.com")


@pytest.mark.parametrize(
    ("text", "url", "where"),
    [
        ("http://example.com", "http://example.com/", "example.com:80"),
        ("HTTPS://Example.COM:443/a?b=c#d", "https://example.com/a?b=c", "example.com:443"),
        ("https://example.com?x=1", "https://example.com/?x=1", "example.com:443"),
        ("https://user:pass@example.com:8443/p", "https://example.com:8443/p", "example.com:8443"),
        ("http://[::1]:8080/", "http://[::1]:8080/", "[::1]:8080"),
        ("https://example.com/a@b:c/\\d e", "https://example.com/a@b:c/\\d e", "example.com:443"),
        ("http://one@two@example.com/", "http://example.com/", "example.com:80"),
    ],
)
def test_urls_are_taken_apart(text: str, url: str, where: str) -> None:
    target = read_url(text)
    assert (target.url, target.where) == (url, where)


def test_user_and_password_are_kept_apart_and_out_of_sight() -> None:
    target = read_url("https://us%40er:p%3Aw@example.com/path-secret?query-secret")
    assert target.userinfo == ("us@er", "p:w")
    assert "p:w" not in repr(target)
    assert "secret" not in repr(target)


@pytest.mark.parametrize(
    "text",
    [
        "", "example.com", "//example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/",
        "http:/example.com", "http:example.com", "http:\\\\example.com\\", "http://", "http:///path", "http://@/",
        "http://:80/", "http://example.com:/", "http://example.com:0/", "http://example.com:65536/",
        "http://example.com:8o/", "http://example.com:-80/", "http://example.com:٨٠/", "http://example.com:80:80/",
        "http://exa mple.com/", "http://example.com\\@evil.example/", "http://example.com\t/", "http://exam\nple.com/",
        " http://example.com/", "http://example.com/\r\nHost: evil", "http://::1/", "http://[::1]x:80/", "http://[::1/",
        "http://127.1/", "http://user@127.1/", "http://example.com%00.evil.example/", "http://%65xample.com/",
        "http://example.com/" + "x" * 20_000, "http://[fe80::1%25eth0]/", "jar:http://example.com/", "http://a#@b/\x00",
    ],
)  # fmt: skip
def test_what_is_no_plain_http_url_is_refused(text: str) -> None:
    with pytest.raises(EgressRefusedError):
        read_url(text)


@pytest.mark.parametrize("text", ["http://u:hunter2@exa mple.com/?k=hunter2", "http://u:hunter2@x:99999/hunter2"])
def test_refusals_do_not_repeat_secrets(text: str) -> None:
    with pytest.raises(EgressRefusedError) as caught:
        read_url(text)
    assert "hunter2" not in str(caught.value) + repr(caught.value) + repr(caught.value.details)
