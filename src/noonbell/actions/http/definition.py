"""The definition of an `http` action, as it may be written and as it is stored.

    method            GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS; GET, or POST where there is a body
    url               http or https, with a host that is not a secret (or all of it, from its beginning)
    headers           names and texts
    query             names and values, added to the URL's own
    body              {"text": …}, {"json": …} or {"form": {…}}; a text alone is a text
    timeout           {"connect": seconds, "total": seconds}; 10 and 30
    expect_status     what counts as a success; 2xx
    assert            what the body must say
    follow_redirects  false, true (up to 5) or a number from 0 to 5; false
    verify_tls        true
    auth              {"basic": {"user": …, "password": …}} or {"bearer": …}
    sign              whether requests are signed; where it is left out, they are if there is a master key

`${secrets.NAME}` is allowed in url, headers, query, body and auth. What has its default is left out of what is stored.
Whether a secret exists, and whether the host may be reached, is found out when a request is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from noonbell.actions.checking import encodable, known_only
from noonbell.actions.egress.exchange import MOST_REDIRECTS
from noonbell.actions.egress.hosts import read_url
from noonbell.actions.http.expectation import check_assertion, check_statuses
from noonbell.actions.secrets.references import Kind, Template, names_in
from noonbell.errors import EgressRefusedError, ScheduleInvalidError, SecretReferenceError

EXAMPLE: Final = (
    '{"kind": "http", "method": "POST", "url": "https://example.com/hook", "body": {"json": {"full": true}}}'
)
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
CONNECT_SECONDS: Final = 10.0
TOTAL_SECONDS: Final = 30.0
LONGEST_TOTAL_SECONDS: Final = 3_600
LARGEST_BODY: Final = 1_000_000

_KEYS: Final = (
    "kind", "method", "url", "headers", "query", "body", "timeout", "expect_status", "assert", "follow_redirects",
    "verify_tls", "auth", "sign",
)  # fmt: skip
_BODIES: Final = ("text", "json", "form")
_LONGEST_URL: Final = 8_000
_LONGEST_VALUE: Final = 8_000
_MOST_PAIRS: Final = 100
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}", re.ASCII)
_NOT_IN_A_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MADE_FROM_THE_REST: Final = frozenset(
    "connection content-length expect host http2-settings keep-alive proxy-authorization proxy-connection te trailer "
    "transfer-encoding upgrade".split()
)
_OURS: Final = frozenset({"idempotency-key", "webhook-id", "webhook-timestamp", "webhook-signature"})
_ANY_REFERENCE: Final = re.compile(r"\$\{secrets\.[A-Za-z0-9_]*\}")


def check_http(action: Mapping[str, Any]) -> dict[str, Any]:
    """The action in the form that is stored."""
    known_only(action, _KEYS, EXAMPLE)
    body = None if action.get("body") is None else _body(action["body"])
    checked: dict[str, Any] = {"kind": "http", "method": _method(action, body), "url": _url(action.get("url"))}
    readers: dict[str, Callable[[Any], Any]] = {
        "headers": _headers,
        "query": _query,
        "timeout": _timeout,
        "expect_status": check_statuses,
        "assert": check_assertion,
        "follow_redirects": _redirects,
        "verify_tls": lambda value: _flag("verify_tls", value),
        "auth": _auth,
    }
    unless: dict[str, Any] = {
        "headers": {}, "query": {}, "timeout": {}, "expect_status": ["200-299"], "follow_redirects": 0,
        "verify_tls": True,
    }  # fmt: skip
    for key, read in readers.items():
        if action.get(key) is not None:
            value = read(action[key])
            if key not in unless or value != unless[key]:
                checked[key] = value
    if body is not None:
        checked["body"] = body
    if action.get("sign") is not None:
        checked["sign"] = _flag("sign", action["sign"])
    _check_authorization(checked)
    return checked


def _check_authorization(checked: Mapping[str, Any]) -> None:
    """Refuse two ways of authentication."""
    ways = [
        name
        for name, there in (
            ("action.auth", "auth" in checked),
            ("a header Authorization", any(key.lower() == "authorization" for key in checked.get("headers", {}))),
            ("a user in action.url", "@" in _place(checked["url"])),
        )
        if there
    ]
    if len(ways) > 1:
        raise ScheduleInvalidError(ways[0], "(not shown)", f"cannot be combined with {ways[1]}; use one")


def _place(url: str) -> str:
    return re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]


def _method(action: Mapping[str, Any], body: object) -> str:
    method = action.get("method") or ("GET" if body is None else "POST")
    if not isinstance(method, str) or method.upper() not in METHODS:
        raise ScheduleInvalidError("action.method", method, f"must be one of {', '.join(METHODS)}")
    if method.upper() == "HEAD" and body is not None:
        raise ScheduleInvalidError("action.body", "(not shown)", "cannot be sent with HEAD; use POST, or no body")
    return method.upper()


def _url(value: object) -> str:
    field = "action.url"
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_URL:
        right = f"must be a URL of at most {_LONGEST_URL} characters, such as https://example.com/hook"
        raise ScheduleInvalidError(field, value, right)
    url = encodable(field, value.strip())
    refer(url, "url", field)
    if not url.startswith("${"):
        # as it will be read with the secrets filled in: none of them can be in scheme, host or port
        try:
            read_url(_ANY_REFERENCE.sub("x", url.replace("$${", "${")))
        except EgressRefusedError as error:
            if "://" not in url:
                raise ScheduleInvalidError(
                    field, _shortened(url), "must be a URL such as https://example.com/hook"
                ) from None
            raise ScheduleInvalidError(field, _place(url).rpartition("@")[2], str(error)) from None
    return url


def refer(text: str, kind: Kind, field: str) -> Template:
    """Return a text with its references read. A wrong reference raises an error about the field."""
    try:
        return Template(text, kind, field)
    except SecretReferenceError as error:
        raise ScheduleInvalidError(field, _shortened(text), error.reason) from None


def _refer_tree(tree: Any, field: str) -> None:
    try:
        names_in(tree, field)
    except SecretReferenceError as error:
        raise ScheduleInvalidError(error.place, "(not shown)", error.reason) from None
    except RecursionError:
        raise ScheduleInvalidError(field, "(not shown)", "is nested too deep") from None


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"


def _pairs(field: str, value: object, example: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or len(value) > _MOST_PAIRS:
        raise ScheduleInvalidError(field, value, f"must be an object of at most {_MOST_PAIRS}, such as {example}")
    for name in value:
        if not isinstance(name, str) or not name:
            raise ScheduleInvalidError(field, name, "must have names that are texts, not empty")
        encodable(field, name)
    return value


def _headers(value: object) -> dict[str, str]:
    checked: dict[str, str] = {}
    seen: set[str] = set()
    for name, given in _pairs("action.headers", value, '{"Accept": "application/json"}').items():
        field = f"action.headers.{name}"
        lower = name.lower()
        if not _NAME.fullmatch(name):
            raise ScheduleInvalidError(field, name, "is not a header name: letters, digits and hyphens")
        if lower in _MADE_FROM_THE_REST:
            raise ScheduleInvalidError(field, given, "cannot be set: it is made from the URL and the body")
        if lower in _OURS or lower.startswith("noonbell-"):
            raise ScheduleInvalidError(field, given, "cannot be set: it identifies the run to the receiver")
        if lower in seen:
            raise ScheduleInvalidError(field, given, "is given twice; upper and lower case count as the same")
        seen.add(lower)
        checked[name] = _header_value(field, given)
    return checked


def _header_value(field: str, given: object) -> str:
    if not isinstance(given, str) or len(given) > _LONGEST_VALUE:
        raise ScheduleInvalidError(field, given, f"must be a text of at most {_LONGEST_VALUE} characters")
    if _NOT_IN_A_VALUE.search(given):
        raise ScheduleInvalidError(field, given, "holds a control character, such as the end of a line")
    refer(encodable(field, given), "header", field)
    return given


def _query(value: object) -> dict[str, Any]:
    return _values("action.query", value, '{"page": 1}')


def _values(field: str, value: object, example: str) -> dict[str, Any]:
    """Names with a value each, or a list of values: texts, numbers, true and false."""
    checked: dict[str, Any] = {}
    for name, given in _pairs(field, value, example).items():
        many = list(given) if isinstance(given, list | tuple) else [given]
        for one in many:
            if not isinstance(one, str | int | float) or (isinstance(one, str) and len(one) > LARGEST_BODY):
                right = "must be a text, a number, true or false, or a list of those"
                raise ScheduleInvalidError(f"{field}.{name}", given, right)
            if isinstance(one, str):
                refer(encodable(f"{field}.{name}", one), "text", f"{field}.{name}")
        checked[name] = many if isinstance(given, list | tuple) else given
    return checked


def _body(value: object) -> dict[str, Any]:
    written: object = {"text": value} if isinstance(value, str) else value
    if not isinstance(written, Mapping) or len(written) != 1 or next(iter(written)) not in _BODIES:
        right = 'must be {"text": …}, {"json": …} or {"form": {…}}, or a text'
        raise ScheduleInvalidError("action.body", value, right)
    ((kind, given),) = written.items()
    field = f"action.body.{kind}"
    if kind == "form":
        return {"form": _values(field, given, '{"name": "value"}')}
    if kind == "text":
        if not isinstance(given, str) or len(encodable(field, given).encode()) > LARGEST_BODY:
            raise ScheduleInvalidError(field, given, f"must be a text of at most {LARGEST_BODY} bytes")
        refer(given, "text", field)
        return {"text": given}
    try:
        size = len(msgspec.json.encode(given))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ScheduleInvalidError(field, given, f"cannot be written as JSON: {error}") from None
    if size > LARGEST_BODY:
        raise ScheduleInvalidError(field, "(not shown)", f"must be at most {LARGEST_BODY} bytes, not {size}")
    _refer_tree(given, field)
    return {"json": given}


def _timeout(value: object) -> dict[str, float]:
    if not isinstance(value, Mapping):
        right = 'must be an object such as {"connect": 5, "total": 60}, in seconds'
        raise ScheduleInvalidError("action.timeout", value, right)
    usual = {"connect": CONNECT_SECONDS, "total": TOTAL_SECONDS}
    for key, given in value.items():
        if key not in usual:
            raise ScheduleInvalidError(f"action.timeout.{key}", given, "is not known; known are connect and total")
        number = isinstance(given, int | float) and not isinstance(given, bool)
        if not number or not 0 < given <= LONGEST_TOTAL_SECONDS:
            right = f"must be a number of seconds above 0, at most {LONGEST_TOTAL_SECONDS}"
            raise ScheduleInvalidError(f"action.timeout.{key}", given, right)
    return {key: value[key] for key in usual if value.get(key, usual[key]) != usual[key]}


def _redirects(value: object) -> int:
    if isinstance(value, bool):
        return MOST_REDIRECTS if value else 0
    if not isinstance(value, int) or not 0 <= value <= MOST_REDIRECTS:
        right = f"must be true, false, or a number from 0 to {MOST_REDIRECTS}"
        raise ScheduleInvalidError("action.follow_redirects", value, right)
    return value


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ScheduleInvalidError(f"action.{name}", value, "must be True or False")
    return value


def _auth(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in ("basic", "bearer"):
        right = 'must be {"basic": {"user": …, "password": …}} or {"bearer": …}'
        raise ScheduleInvalidError("action.auth", "(not shown)", right)
    if "bearer" in value:
        return {"bearer": _credential("action.auth.bearer", value["bearer"])}
    basic = value["basic"]
    if not isinstance(basic, Mapping) or set(basic) != {"user", "password"}:
        raise ScheduleInvalidError("action.auth.basic", "(not shown)", 'must have "user" and "password", and no more')
    user = _credential("action.auth.basic.user", basic["user"])
    if ":" in user:
        raise ScheduleInvalidError("action.auth.basic.user", "(not shown)", "cannot hold a colon, which ends it")
    return {"basic": {"user": user, "password": _credential("action.auth.basic.password", basic["password"])}}


def _credential(field: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_VALUE or _NOT_IN_A_VALUE.search(value):
        right = f"must be a text of at most {_LONGEST_VALUE} characters, without control characters"
        raise ScheduleInvalidError(field, "(not shown)", right)
    try:
        Template(encodable(field, value), "header", field)
    except SecretReferenceError as error:
        raise ScheduleInvalidError(field, "(not shown)", error.reason) from None
    return value
