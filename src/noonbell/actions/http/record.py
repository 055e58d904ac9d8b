"""The record of an attempt: the request as it was sent, the answer as it came, the error; without secrets.

    {"kind": "http",
     "request": {"method", "url", "headers": [[name, value]], "body"},
     "response": {"status", "headers", "body", "cut", "bytes"} or null,
     "error": {"kind", "message"} or null,
     "duration_ms", "triggered_by", "attempt"}

Bodies are texts, or {"base64": …} where they are not UTF-8, or null. The answer's is cut at 1 MiB (`cut`); `bytes` is
how many are kept. After redirects, `response` has `url` and `redirects` too; a body that came packed in a way that was
not unpacked has `packed`.

Everything is masked before it is put together. Credentials are hidden in any case, be they secrets or not, so that none
is stored: the values of headers and parameters of URLs that `credential_rule` names, in requests and in answers. User
and password of a URL that was sent are left out; of one that was not sent, references to secrets stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from noonbell.actions.egress import Incoming, Outgoing
from noonbell.actions.egress.exchange import headers_of, length_of
from noonbell.actions.http.credential_rule import hidden_header, hidden_url
from noonbell.actions.http.credentials import shown_url
from noonbell.actions.http.request import Filled
from noonbell.actions.secrets.masking import MASK, Masker
from noonbell.core.records import Start

_HEADERS_WITH_A_URL: Final = frozenset({"location", "content-location", "referer"})
LARGE: Final = 65_536
"""From how many bytes on a body is masked and written down in a thread, beside the event loop."""


class Facts(msgspec.Struct, frozen=True, gc=False):
    """The facts of an attempt that has ended. `sent` is None where it never came to a request."""

    start: Start
    method: str
    written_url: str
    filled: Filled | None
    sent: Outgoing | None
    answer: Incoming | None
    error: tuple[str, str] | None  # kind and message, masked
    seconds: float

    @property
    def size(self) -> int:
        """The bytes of both bodies."""
        sent = 0 if self.sent is None or self.sent.body is None else len(self.sent.body)
        return sent + (0 if self.answer is None else len(self.answer.body))


def triggered_by(start: Start) -> str:
    """Return the trigger of the run: `schedule`, `manual` or `api`."""
    if start.kind == "scheduled":
        return "schedule"
    return "api" if start.cause in ("api", "api_once", "api_retry") else "manual"


def record(facts: Facts, masker: Masker) -> dict[str, Any]:
    """The detail of an attempt."""
    error = facts.error
    return {
        "kind": "http",
        "request": _request(facts, masker),
        "response": None if facts.answer is None else _response(facts.answer, masker),
        "error": None if error is None else {"kind": error[0], "message": error[1]},
        "duration_ms": round(facts.seconds * 1000, 3),
        "waited_ms": facts.start.waited_us / 1000,
        "triggered_by": triggered_by(facts.start),
        "attempt": facts.start.attempt,
    }


def _request(facts: Facts, masker: Masker) -> dict[str, Any]:
    if facts.filled is None or facts.sent is None:
        # as it was written, references and all: nothing was filled in, and nothing sent
        url = shown_url(masker.text(facts.written_url))
        return {"method": facts.method, "url": url, "headers": [], "body": None}
    # as the client writes them: see `egress.wire`
    target, length = facts.filled.target, length_of(facts.sent.method.upper(), facts.sent.body)
    headers = [("Host", masker.text(target.authority)), *_headers(headers_of(facts.sent), masker)]
    if length is not None:
        headers.append(("Content-Length", str(length)))
    if facts.filled.target.userinfo is not None:
        headers.append(("Authorization", f"Basic {MASK}"))
    body = facts.sent.body
    return {
        "method": facts.method,
        "url": _url(facts.filled.target.url, masker),
        "headers": headers,
        "body": None if body is None else _body(body, masker),
    }


def _response(answer: Incoming, masker: Masker) -> dict[str, Any]:
    recorded: dict[str, Any] = {
        "status": answer.status,
        "headers": _headers(answer.headers, masker),
        "body": _body(answer.body, masker, cut=answer.cut),
        "cut": answer.cut,
        "bytes": len(answer.body),
    }
    if answer.redirects:
        recorded |= {"url": _url(answer.url, masker), "redirects": answer.redirects}
    if answer.packed:
        recorded["packed"] = masker.text(answer.packed)
    return recorded


def _headers(headers: Iterable[tuple[str, str]], masker: Masker) -> list[tuple[str, str]]:
    return [(masker.text(name), _header(name, value, masker)) for name, value in headers]


def _header(name: str, value: str, masker: Masker) -> str:
    if name.lower() in _HEADERS_WITH_A_URL:
        return _url(value, masker)
    return masker.text(hidden_header(name, value))


def _url(url: str, masker: Masker) -> str:
    """Masked first: a secret that is a whole URL is found only as long as it is whole."""
    return hidden_url(masker.text(url))


def _body(body: bytes, masker: Masker, *, cut: bool = False) -> str | dict[str, bytes]:
    shown = masker.data(body, cut=cut) if masker else body
    try:
        return (_whole_signs(shown) if cut else shown).decode()
    except UnicodeDecodeError:
        return {"base64": shown}  # bytes are written so where the whole becomes JSON


def _whole_signs(data: bytes) -> bytes:
    """Without the beginning of a sign at the end, where a text was cut in the middle of one."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 != 0x80:
            needed = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return data[:-back] if needed > back else data
    return data
