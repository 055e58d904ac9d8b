"""No secret survives masking, whatever form it was written in, and nothing else is lost."""

from __future__ import annotations

import base64
import dataclasses
import html
import html.entities
import json
import logging
import pickle
import time
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.actions.secrets.logs import MaskingFilter
from noonbell.actions.secrets.masking import MASK, Masker
from noonbell.actions.secrets.nested import NestedForms
from noonbell.errors import SecretInvalidError
from tests.effort import examples

AWKWARD = "pa$$/w+rd é\"\\%&'\n\U0001f511"
PLAIN = "hunter2hunter"


@cache
def masker_of(secret: str) -> Masker:
    """One masker for all encodings of a secret: compiling it takes longer than using it."""
    return Masker([secret])


def lowered(text: str) -> str:
    """Percent signs with small digits, made without the code under test."""
    parts = text.split("%")
    return parts[0] + "".join("%" + part[:2].lower() + part[2:] for part in parts[1:])


NAMES = {char: name for name, char in html.entities.html5.items() if name.endswith(";") and char.isascii()}

# Each turns a secret into what an encoder of the standard library makes of it, with something of its own around it.
ENCODERS: dict[str, Callable[[str], str]] = {
    "raw": lambda s: s,
    "quote": urllib.parse.quote,
    "quote all": lambda s: urllib.parse.quote(s, safe=""),
    "quote lower": lambda s: lowered(urllib.parse.quote(s, safe="")),
    "quote plus": urllib.parse.quote_plus,
    "quote every byte": lambda s: "".join(f"%{byte:02X}" for byte in s.encode()),
    "query": lambda s: urllib.parse.urlencode({"token": s}),
    "json": lambda s: json.dumps({"token": s}),
    "json utf-8": lambda s: json.dumps({"token": s}, ensure_ascii=False),
    "json in json": lambda s: json.dumps({"body": json.dumps({"token": s})}),
    "json, every sign escaped": lambda s: "".join(
        f"\\u{s.encode('utf-16-be').hex()[at : at + 4].upper()}" for at in range(0, len(s.encode("utf-16-be").hex()), 4)
    ),
    "html": html.escape,
    "html, every sign as a number": lambda s: "".join(f"&#{ord(char)};" for char in s),
    "html, every sign in hex": lambda s: "".join(f"&#x{ord(char):x};" for char in s),
    "html, numbers with zeros": lambda s: "".join(f"&#X{ord(char):06X};" for char in s),
    "html, numbers without semicolons": lambda s: "".join(f"&#{ord(char):07}" for char in s),
    "html, every other sign as a number": lambda s: "".join(
        html.escape(char) if place % 2 else f"&#{ord(char)};" for place, char in enumerate(s)
    ),
    "html by names": lambda s: "".join(f"&{NAMES[char]}" if char in NAMES else char for char in s),
    "json in a query": lambda s: urllib.parse.quote(json.dumps({"token": s}), safe=""),
    "repr": repr,
    "repr of bytes": lambda s: repr(s.encode()),
    "hex": lambda s: s.encode().hex(),
    "HEX": lambda s: s.encode().hex().upper(),
    "hex with colons": lambda s: s.encode().hex(":"),
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 urlsafe": lambda s: base64.urlsafe_b64encode(s.encode()).decode(),
    "base64 bare": lambda s: base64.b64encode(s.encode()).decode().rstrip("="),
    "base64 in a query": lambda s: urllib.parse.quote(base64.b64encode(s.encode()).decode(), safe=""),
    "basic auth u": lambda s: "Basic " + base64.b64encode(f"u:{s}".encode()).decode(),
    "basic auth us": lambda s: "Basic " + base64.b64encode(f"us:{s}".encode()).decode(),
    "basic auth use": lambda s: "Basic " + base64.urlsafe_b64encode(f"use:{s}".encode()).decode(),
    "base64 of text around": lambda s: base64.b64encode(f"ab{s}cdefg".encode()).decode(),
    "base64 in lines": lambda s: base64.encodebytes(b"x" * 50 + s.encode() + b"y" * 60).decode(),
    "base64 of json": lambda s: base64.b64encode(json.dumps({"p": s}).encode()).decode(),
}


def each(write: Callable[[str], str]) -> Callable[[str], str]:
    return lambda secret: "".join(map(write, secret))


def each_byte(write: Callable[[int], str]) -> Callable[[str], str]:
    return lambda secret: "".join(map(write, secret.encode()))


def in_json(depth: int) -> Callable[[str], str]:
    """Write a text as a JSON string, that one as a JSON string, and so on; without the quotes around the whole."""

    def encode(text: str) -> str:
        for _ in range(depth):
            text = json.dumps(text)[1:-1]
        return text

    return encode


# Escapes in several layers, and escapes of other languages. None of them adds anything of its own around the secret.
LAYERED: dict[str, Callable[[str], str]] = {
    "json, 3 deep": in_json(3),
    "json, 4 deep": in_json(4),
    "json, 6 deep": in_json(6),
    "json in a query in json": lambda s: in_json(2)(urllib.parse.quote_plus(in_json(1)(s))),
    "html in json in html": lambda s: html.escape(in_json(2)(html.escape(html.escape(s)))),
    "quoted three times": lambda s: urllib.parse.quote(urllib.parse.quote_plus(urllib.parse.quote(s, safe=""))),
    "quoted eight times": lambda s: urllib.parse.quote(s, safe="").replace("%", "%" + "25" * 7),
    "numbers, & as in JSON": each(lambda char: f"\\u0026#{ord(char)};"),
    "numbers, & as in JSON in JSON": each(lambda char: f"\\\\u0026#x{ord(char):X};"),
    "numbers, & as a name": each(lambda char: f"&amp;#{ord(char)};"),
    "numbers, & as a name, twice": each(lambda char: f"&amp;amp;#x{ord(char):x};"),
    "numbers, & as a number": each(lambda char: f"&#38;#{ord(char):05};"),
    "numbers, percent-encoded": each(lambda char: urllib.parse.quote(f"&#{ord(char)};", safe="")),
    "numbers, all percent-encoded": each(lambda char: "".join(f"%{ord(sign):02x}" for sign in f"&#{ord(char)};")),
    "numbers with many zeros": each(lambda char: f"&#{ord(char):020};"),
    "numbers with more zeros than digits are read": each(lambda char: f"&#x{ord(char):05000x};"),
    "octal": each_byte(lambda byte: f"\\{byte:03o}"),
    "octal in json": each_byte(lambda byte: f"\\\\{byte:03o}"),
    "eight digits": each(lambda char: f"\\U{ord(char):08X}"),
    "braces": each(lambda char: f"\\u{{{ord(char):x}}}"),
    "braces in json": each(lambda char: f"\\\\u{{{ord(char):04X}}}"),
    "four digits in json": lambda s: in_json(1)(ENCODERS["json, every sign escaped"](s)),
    "percent u": lambda s: ENCODERS["json, every sign escaped"](s).replace("\\", "%"),
    "another in turn": lambda s: "".join(
        (f"\\u0026#{ord(char)};", f"&amp;#x{ord(char):x};", f"\\U{ord(char):08x}", f"\\u{{{ord(char):x}}}")[place % 4]
        for place, char in enumerate(s)
    ),
}

# A small alphabet makes overlaps and repeats likely, a wide one makes escapes.
small = st.text("ab/%", min_size=6, max_size=12)
wide = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=40)
usual = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~+/=!@#$", min_size=6, max_size=64)
secrets = st.one_of(wide, usual).filter(lambda s: len(set(s.strip())) >= 3 and len(s.strip()) >= 6)


def readings(text: str) -> set[str]:
    """The oracle: what somebody who has the text can make of it by decoding, once or twice, all of it or any word."""
    found = {text}
    for _ in range(2):
        found |= {reading for known in tuple(found) for reading in decodings(known)}
    return found


def decodings(text: str) -> set[str]:
    found = {urllib.parse.unquote(text), urllib.parse.unquote_plus(text), html.unescape(text)}
    for quoted in (text, f'"{text}"'):
        with suppress(ValueError):
            found.add(str(json.loads(quoted)))
    words = "".join(
        char if char.isalnum() or char in "+/-_" else " " for char in text.replace("\n", "").replace(":", "")
    ).split()
    for word in words:
        # Latin-1, so that what comes before and after the secret does not have to be text
        for start in range(4):
            part = word[start:].replace("-", "+").replace("_", "/")
            with suppress(ValueError):
                found.add(base64.b64decode(part + "A" * (-len(part) % 4)).decode("latin-1"))
        with suppress(ValueError):
            found.add(bytes.fromhex(word).decode("latin-1"))
    return found


@pytest.mark.parametrize("name", ENCODERS)
def test_the_oracle_reads_what_was_not_masked(name: str) -> None:
    assert any(PLAIN in reading for reading in readings("before " + ENCODERS[name](PLAIN) + " after"))


@pytest.mark.parametrize(
    "secret", [AWKWARD, PLAIN, "abcdef", "%41%41%42", "\\u0041\\\\n", "a b c d e", "&amp;&lt;&#39;"]
)
@pytest.mark.parametrize("name", ENCODERS)
def test_every_form_is_masked(secret: str, name: str) -> None:
    masker = masker_of(secret)
    around = "before " + ENCODERS[name](secret) + " after"
    for masked in (masker.text(around), masker.data(around.encode()).decode()):
        assert MASK in masked
        assert masked.startswith("before ")
        assert masked.endswith(" after")
        assert not any(secret in reading or secret in latin(reading) for reading in readings(masked))


# As services give them to programs: JSON with a private key in it, and one line of many signs.
LONG = {
    "a service account": json.dumps(
        {"type": "service_account", "key": "-----BEGIN KEY-----\n" + "\n".join(f"{n:02}kF3x/9+Q" * 6 for n in range(5))}
    ),
    "one line": "".join(f'{number:03}aZ/é"\\' for number in range(45)),
    "many signs": "".join(f"{number:04}Qm+" for number in range(examples(300))),  # mixtures are found up to 4,096
}


@pytest.mark.parametrize("secret", LONG.values(), ids=LONG.keys())
@pytest.mark.parametrize("name", ENCODERS)
def test_every_form_of_a_long_secret_is_masked(secret: str, name: str) -> None:
    assert len(secret) > 300
    masker = masker_of(secret)
    around = "before " + ENCODERS[name](secret) + "<after>"
    for masked in (masker.text(around), masker.data(around.encode()).decode()):
        assert masked.startswith("before ")
        assert masked.endswith("<after>")
        read = readings(masked)
        read |= {latin(one) for one in read}
        for begin in range(0, len(secret) - 40, 40):
            assert not any(secret[begin : begin + 40] in one for one in read)


@pytest.mark.parametrize(
    "secret", [AWKWARD, PLAIN, "Sk1v9Zq7Xy3Lm5Np8Rs2Tw4", LONG["a service account"], LONG["many signs"]]
)
def test_escapes_in_layers_are_masked(secret: str) -> None:
    masker = masker_of(secret)
    for name, encode in LAYERED.items():
        around = f"<before> {encode(secret)} <after>"
        assert masker.text(around) == "<before> *** <after>", name
        assert masker.data(around.encode()) == b"<before> *** <after>", name


def test_escapes_in_layers_among_other_text() -> None:
    masker = masker_of(PLAIN)
    for name, encode in LAYERED.items():
        before, after = encode('{"é": "\\\\'), encode('\\n"}\U0001f511')
        whole = before + "|" + encode(PLAIN) + "|" + after + "|" + encode(PLAIN)
        masked = f"{before}|***|{after}|***"
        assert masker.text(whole) == masked, name
        assert masker.data(whole.encode()) == masked.encode(), name
        if "more zeros" not in name:  # in a stream 64 bytes for each of the value are found
            stream = masker.text_stream()
            shown = "".join(stream.feed(whole[at : at + 7]) for at in range(0, len(whole), 7)) + stream.finish()
            assert shown == masked, name


@pytest.mark.parametrize("size", [1, 3, 7, 50])
def test_escapes_in_layers_where_a_long_text_is_divided(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noonbell.actions.secrets.nested._WINDOW", size)
    forms = NestedForms([AWKWARD])
    for name, encode in LAYERED.items():
        form = encode(AWKWARD)
        shown = f"y&{form}z%" + "y" * size + form
        begins = (2, len(shown) - len(form))
        assert forms.spans(shown) == [(begin, begin + len(form)) for begin in begins], name


@pytest.mark.parametrize("name", [name for name in LAYERED if "more zeros" not in name])
def test_a_cut_text_does_not_end_with_half_a_secret_in_layers(name: str) -> None:
    masker = masker_of('Zq7#Xy/3-"Lm')
    form = LAYERED[name]('Zq7#Xy/3-"Lm')
    begin = len(LAYERED[name]("Zq7#"))
    for kept in range(begin, len(form)):
        for masked in (masker.text(f"é {form[:kept]}", cut=True), masker.data(form[:kept].encode(), cut=True).decode()):
            assert masked in {"é ***", "***"}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-32"])
def test_ascii_in_wide_encodings_is_masked(encoding: str) -> None:
    masked = masker_of(PLAIN).data(f"<{PLAIN}>".encode(encoding))
    assert masked.replace(b"\0", b"").endswith(b"<***>")
    assert masker_of(PLAIN).text(repr(f"<{PLAIN}>".encode(encoding))).count(MASK) == 1


# Without what may remain at the edges of a find: the first signs of escapes.
bounded = secrets.map(lambda s: s.strip("\\%&#\0")).filter(lambda s: len(set(s)) >= 3 and len(s) >= 6)


@given(bounded, st.sampled_from(sorted(LAYERED)))
@settings(max_examples=examples(60), deadline=None)
def test_random_secrets_do_not_survive_in_layers(secret: str, name: str) -> None:
    nested = NestedForms([secret])
    shown = LAYERED[name](secret)
    # values that stand for less than six signs are found in one layer or two, and those without escapes by their forms
    if nested.reach and shown != secret:
        assert nested.spans(f"|{shown}|") == [(1, len(shown) + 1)]


@pytest.mark.exhaustive
def test_a_secret_of_the_greatest_length_encoded_twice() -> None:
    secret = "".join(f'{number:04}"Qm+\n' for number in range(1_600))
    shown = json.dumps({"body": json.dumps({"token": secret})})
    for masked in (Masker([secret]).text(shown), Masker([secret]).data(shown.encode()).decode()):
        assert json.loads(json.loads(masked)["body"]) == {"token": MASK + "\n"}


def latin(text: str) -> str:
    return text.encode("latin-1", "replace").decode("utf-8", "replace")


@given(
    secrets,
    st.sampled_from(sorted(ENCODERS)),
    st.text(max_size=20),
    st.text(max_size=20),
)
@settings(max_examples=examples(80), deadline=None)
def test_random_secrets_never_survive(secret: str, name: str, before: str, after: str) -> None:
    around = before + ENCODERS[name](secret) + after
    masker = Masker([secret])
    assert ENCODERS[name](secret.strip()) not in masker.text(around)
    assert not any(secret.strip() in reading for reading in readings(masker.text(around)))
    try:
        data = around.encode()
    except UnicodeEncodeError:
        return
    assert not any(secret.strip() in reading for reading in readings(masker.data(data).decode("utf-8", "replace")))


def test_all_of_what_overlapping_secrets_cover_goes() -> None:
    masker = Masker(["abcdef1", "def1ghi", "hij-klm"])
    assert masker.text("<abcdef1ghij-klm>") == "<***>"
    assert masker.text("<abcdef1ghi> <def1ghij-klm>") == "<***> <***>"
    assert masker.text("<abcdef1def1ghi>") == "<******>"


@given(st.text("abcdefgh/%", min_size=12, max_size=30).filter(lambda s: len(set(s)) > 5), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_no_place_under_a_secret_shows_through_where_secrets_overlap(base: str, data: st.DataObject) -> None:
    # secrets that are parts of one text overlap wherever that text stands
    starts = data.draw(st.lists(st.integers(0, len(base) - 6), min_size=1, max_size=4))
    values = [base[start : start + data.draw(st.integers(6, 12))] for start in starts]
    values = [value for value in values if len(set(value)) >= 3]
    text = "".join(data.draw(st.lists(st.one_of(st.just(base), st.text("xyz", max_size=3)), max_size=5)))
    covered = [False] * len(text)
    for value in values:
        at = text.find(value)
        while at >= 0:
            covered[at : at + len(value)] = [True] * len(value)
            at = text.find(value, at + 1)
    kept = "".join(char for char, hidden in zip(text, covered, strict=True) if not hidden)
    shown = Masker(values).text(text).replace(MASK, "")
    # encoded forms may hide a little more than the plain ones; never less
    assert is_subsequence(shown, kept)


def is_subsequence(part: str, whole: str) -> bool:
    rest = iter(whole)
    return all(char in rest for char in part)


@given(st.text(), st.binary())
@settings(max_examples=examples(100), deadline=None)
def test_what_holds_no_secret_stays_as_it_is(text: str, data: bytes) -> None:
    masker = Masker(["correct horse battery", "Tr0ub4dor&3"])
    assert masker.text(text) == text
    assert masker.data(data) == data


@given(
    st.lists(st.one_of(usual, small).filter(lambda s: len(set(s)) >= 3), min_size=1, max_size=3),
    st.data(),
)
@settings(max_examples=examples(100), deadline=None)
def test_a_stream_is_masked_as_if_it_had_come_whole(values: list[str], data: st.DataObject) -> None:
    forms = [
        ENCODERS[name](value) for value in values for name in ("raw", "quote all", "base64", "basic auth u", "hex")
    ]
    pieces = st.one_of(st.sampled_from(forms), st.text("ab/%", max_size=30), st.text(max_size=5))
    whole = "".join(data.draw(st.lists(pieces, max_size=10)))
    masker = Masker(values)
    stream = masker.text_stream()
    out, at = "", 0
    while at < len(whole):
        size = data.draw(st.integers(1, 40))
        out += stream.feed(whole[at : at + size])
        at += size
    assert out + stream.finish() == masker.text(whole)


def test_a_stream_hands_out_what_cannot_belong_to_a_secret() -> None:
    stream = Masker([PLAIN]).stream()
    handed = sum(len(stream.feed(b"." * 1000)) for _ in range(100))
    assert handed > 90_000
    assert handed + len(stream.finish()) == 100_000


def test_bytes_in_other_alphabets() -> None:
    masker = Masker(["é-paßwort"])
    assert masker.data("x é-paßwort y".encode("latin-1")) == b"x *** y"
    assert masker.data("x é-paßwort y".encode()) == b"x *** y"
    # as a server shows a header that came in UTF-8
    assert masker.text("x é-paßwort y".encode().decode("latin-1")) == "x *** y"


def test_the_signs_at_the_edges_of_base64_go_too() -> None:
    masker = Masker(["secret"])
    for user in ("u", "us", "use"):
        encoded = base64.b64encode(f"{user}:secret".encode()).decode()
        same_user = base64.b64encode(f"{user}:".encode()).decode().rstrip("=")
        masked = masker.text(encoded)
        assert masked.endswith(MASK)
        # nothing is left but signs that the user name alone decides
        assert same_user.startswith(masked.removesuffix(MASK))


@pytest.mark.parametrize("kept", range(3, len(PLAIN)))
def test_a_cut_text_does_not_end_with_half_a_secret(kept: int) -> None:
    masker = Masker([PLAIN])
    for form in (PLAIN, base64.b64encode(PLAIN.encode()).decode(), PLAIN.encode().hex()):
        assert masker.text("token: " + form[:kept], cut=True) == "token: ***"
        assert masker.data(b"token: " + form[:kept].encode(), cut=True) == b"token: ***"
    assert masker.text("token: " + PLAIN[:kept]) == "token: " + PLAIN[:kept]
    assert masker.text("nothing here", cut=True) == "nothing here"


def test_a_cut_text_may_end_with_a_secret_that_looks_like_the_beginning_of_one() -> None:
    masker = Masker(["abc-xyz-abc", "c-xyzzy-42"])
    assert masker.text("<abc-xyz-abc", cut=True) == "<***"
    assert masker.text("<abc-xyz-abc-xyz", cut=True) == "<***"
    assert masker.text("<abc-xyz-abc>ab", cut=True) == "<***>ab"


def test_a_longer_secret_is_taken_before_its_own_beginning() -> None:
    masker = Masker(["abc/def", "abc/def1"])
    assert masker.text("<abc%2Fdef1>") == "<***>"
    assert masker.text("<abc/def1> <abc/def>") == "<***> <***>"


def test_lines_of_a_long_secret_are_secrets() -> None:
    lines = [f"{number:02}" + "kF3x/9+Qm" * 6 for number in range(examples(40))]
    key = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(lines) + "\n-----END PRIVATE KEY-----\n"
    masker = Masker([key])
    assert masker.text(f"<{key.strip()}>") == "<***>"
    assert masker.text(json.dumps({"key": key})) == '{"key": "***\\n"}'
    assert masker.text(f"log: {lines[7]}") == "log: ***"
    for name in (
        "base64",
        "base64 in lines",
        "base64 urlsafe",
        "hex",
        "hex with colons",
        "quote lower",
        "json in json",
    ):
        form = ENCODERS[name](key)
        masked = masker.text(f"<{form}>")
        assert MASK in masked
        # what is left is what the encoder put around it, and line ends
        assert len(masked) < 300
        stream = masker.text_stream()
        pieces = [stream.feed(f"<{form}>"[at : at + 999]) for at in range(0, len(form) + 2, 999)]
        assert "".join(pieces) + stream.finish() == masked


class Held(msgspec.Struct):
    name: str
    token: str


@dataclasses.dataclass
class Kept:
    token: bytes


class Opaque:
    def __repr__(self) -> str:
        return f"Opaque({PLAIN})"


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError(PLAIN)

    __str__ = __repr__


def test_structures_keep_their_shape() -> None:
    masker = Masker([PLAIN, "123456"])
    thing: dict[Any, Any] = {
        PLAIN: [1, 2.5, None, True, (PLAIN, b"x" + PLAIN.encode())],
        "struct": Held("n", PLAIN),
        "dataclass": Kept(PLAIN.encode()),
        "number": 91234567,
        "set": {PLAIN},
        (PLAIN, 1): frozenset({(PLAIN,)}),
        "error": ValueError(PLAIN),
    }
    assert masker.value(thing) == {
        MASK: [1, 2.5, None, True, (MASK, b"x***")],
        "struct": {"name": "n", "token": MASK},
        "dataclass": {"token": b"***"},
        "number": "9***7",
        "set": [MASK],
        "('***', 1)": [(MASK,)],
        "error": "ValueError: ***",
    }
    assert masker.value(Opaque()) == "Opaque(***)"
    broken = Broken()
    assert masker.value(broken) is broken
    loop: list[Any] = []
    loop.append(loop)
    assert PLAIN not in repr(masker.value(loop))


def test_errors_are_masked_before_they_are_cut() -> None:
    masker = Masker([PLAIN])
    cause = OSError(f"cannot reach https://u:{PLAIN}@example.org")
    error = RuntimeError("x" * 1970 + PLAIN)
    error.__cause__ = cause
    shown = masker.error(error)
    assert PLAIN[:5] not in shown
    assert shown.startswith("RuntimeError: xxx")
    noted = ValueError("short")
    noted.add_note(f"with {PLAIN}")
    noted.__cause__ = cause
    assert (
        masker.error(noted) == "ValueError: short\nwith ***; caused by OSError: cannot reach https://u:***@example.org"
    )
    assert masker.error(KeyError()) == "KeyError"


def test_log_records_are_masked(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("noonbell.test.masking")
    watch = MaskingFilter(Masker([PLAIN]))
    caplog.handler.addFilter(watch)
    try:
        with caplog.at_level(logging.INFO, logger=log.name):
            log.info("sent %s with %d", PLAIN, 5, extra={"headers": {"authorization": PLAIN}})
            try:
                raise ValueError(PLAIN)
            except ValueError:
                log.exception("failed")
    finally:
        caplog.handler.removeFilter(watch)
    assert "sent *** with 5" in caplog.text
    assert "ValueError: ***" in caplog.text
    assert PLAIN not in caplog.text
    assert caplog.records[0].__dict__["headers"] == {"authorization": MASK}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "at least 6"),
        ("Zq9!x", "at least 6"),
        ("aaaaaaaaaa", "3 different"),
        ("a\ud800bcdefg", "UTF-8"),
        ("abc" * 9999, "at most"),
    ],
)
def test_values_that_cannot_be_masked_are_refused(value: str, reason: str) -> None:
    with pytest.raises(SecretInvalidError, match=reason) as caught:
        Masker([value])
    assert not value or value not in str(caught.value)


def test_hostile_text_does_not_hold_up_a_masker() -> None:
    # every token of a form may be written in several ways; a pattern that tried all of them would never end
    secret = "%25\\\\&amp;" * 20 + "end"
    masker = Masker([secret])
    hostile = ("%25" * 50 + "\\" * 50 + "&amp;" * 50 + secret[:-1]) * 200
    assert masker.text(hostile).count("*") == 0
    assert masker.text(hostile + secret) == hostile[: -len(secret[:-1])] + secret[:-1] + MASK


@pytest.mark.parametrize(
    "piece",
    [
        "\\",
        "&amp;",
        "&" + "amp;" * 20,
        "&#",
        "&#0",
        "&#x" + "0" * 40,
        "\\u0026#",
        "%25",
        "%" + "25" * 20,
        "\0",
        "\\ud83d",
    ],
)
@pytest.mark.parametrize("begin", ["", "&#", "\\u0026#x"])
def test_hostile_escapes_do_not_hold_up_a_masker(begin: str, piece: str) -> None:
    # 128 KiB take milliseconds. What is tried in two ways, or again from each place, takes minutes or longer.
    hostile = begin + piece * (131_072 // len(piece))
    started = time.process_time()
    assert masker_of(PLAIN).text(hostile, cut=True) == hostile
    assert time.process_time() - started < 2


def test_a_masker_shows_nothing_of_itself() -> None:
    masker = Masker([PLAIN])
    assert repr(masker) == "Masker(1 secrets)"
    assert not Masker([])
    assert Masker([]).value({"a": PLAIN}) == {"a": PLAIN}
    assert Masker([]).text(PLAIN, cut=True) == PLAIN
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(masker)


def test_many_values_and_one_more() -> None:
    """They are looked for in chunks, and those of another masker are used again."""
    values = [f"{number:03}-value-{number * 7919}" for number in range(18)]
    masker = Masker(values[:-1])
    more = Masker(values, like=masker)
    less = Masker(values[5:], like=more)
    shown = " ".join(values)
    assert masker.text(shown) == " ".join([MASK] * 17 + values[-1:])
    assert more.text(shown) == " ".join([MASK] * 18)
    assert less.text(shown) == " ".join(values[:5] + [MASK] * 13)
    # finds of different chunks that overlap: a chunk takes 8 values in their order, and 8 are between these two
    apart = Masker(["abcdefghi", *(f"bb{number}-other-{number * 7907}" for number in range(8)), "ghijklmnop"])
    assert apart.text("x abcdefghijklmnop y") == "x *** y"
    assert apart.data(b"x abcdefghijklmnop y") == b"x *** y"


def test_a_long_value_is_masked_in_small_letters_too() -> None:
    masker = Masker(["Xy7Zq9Lm3Np5Rs8T", "Zq9XyLm"])
    assert masker.text("http://xy7zq9lm3np5rs8t.example, zq9xylm") == "http://***.example, zq9xylm"


@pytest.mark.parametrize(
    ("secret", "shown", "masked"),
    [
        (
            "https://hooks.example.com/services/T0123/B0456/Xy7Zq9Lm3Np5Rs8T",
            "POST /services/T0123/B0456/Xy7Zq9Lm3Np5Rs8T: no Xy7Zq9Lm3Np5Rs8T at hooks.example.com/services",
            "POST ***: no *** at hooks.example.com/services",
        ),
        ("https://a.example/?key=Xy7Zq9Lm3Np5Rs8T", '{"key": "Xy7Zq9Lm3Np5Rs8T"}', '{"key": "***"}'),
        ("https://a.example/x?key=a%2Fy7Zq9Lm3Np5Rs8T", "key a/y7Zq9Lm3Np5Rs8T", "key ***"),
        (
            "postgresql://ann:Zq9!xy@db.example/app",
            "ann with Zq9!xy at db.example/app",
            "ann with *** at db.example/app",
        ),
        ("https://a.example/short", "/short is at a.example", "/short is at a.example"),
    ],
)
def test_the_secret_parts_of_a_url_are_masked_by_themselves(secret: str, shown: str, masked: str) -> None:
    assert Masker([secret]).text(shown) == masked
    assert Masker([secret]).text(f"<{secret}>") == "<***>"
