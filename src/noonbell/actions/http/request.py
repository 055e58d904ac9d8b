"""The request of one attempt, made from the definition, the secrets and the run. Nothing is sent here.

A definition is read once and kept (`job_of`). Where it refers to no secret, all but the headers of the run is made once
as well. `Filled` is what was asked for; `outgoing` adds the headers that identify the run:

    Idempotency-Key, webhook-id, Noonbell-Scheduled-For, Noonbell-Attempt     always
    webhook-timestamp, webhook-signature                                      where there is a signer

Secrets are put in as `secrets.references` says: none can break a header in two, or be a host.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote_plus

import msgspec

from noonbell.actions.egress import Outgoing
from noonbell.actions.egress.hosts import Target, read_url
from noonbell.actions.http.definition import CONNECT_SECONDS, TOTAL_SECONDS
from noonbell.actions.http.expectation import Expectation, expectation_of
from noonbell.actions.secrets.references import Template, fill_tree, names_in
from noonbell.actions.signatures import Signer, run_headers
from noonbell.core.ids import run_id
from noonbell.core.records import Start
from noonbell.core.turns import definition_of
from noonbell.errors import SecretReferenceError

USER_AGENT: Final = "Noonbell"
_CONTENT_TYPES: Final = {
    "text": "text/plain; charset=utf-8",
    "json": "application/json",
    "form": "application/x-www-form-urlencoded",
}

Headers = tuple[tuple[str, str], ...]


class Filled(msgspec.Struct, frozen=True, gc=False):
    """A request with its secrets in place, before it is known which attempt it belongs to."""

    url: str
    target: Target
    headers: Headers
    body: bytes | None

    def __repr__(self) -> str:
        return f"<Filled {self.target!r}>"


class HttpJob:
    """A definition, read."""

    def __init__(self, action: Mapping[str, Any]) -> None:
        self.method: str = action["method"]
        self.sign: bool | None = action.get("sign")
        self.expectation: Expectation = expectation_of(action)
        timeout = action.get("timeout", {})
        self._total: float = timeout.get("total", TOTAL_SECONDS)
        self._connect: float = min(timeout.get("connect", CONNECT_SECONDS), self._total)
        self._redirects: int = action.get("follow_redirects", 0)
        self._verify: bool = action.get("verify_tls", True)
        self._url = Template(action["url"], "url", "action.url")
        self._query: dict[str, Any] = action.get("query", {})
        self._headers = [
            (name, Template(text, "header", f"action.headers.{name}"))
            for name, text in action.get("headers", {}).items()
        ]
        self._auth: dict[str, Any] = action.get("auth", {})
        self._body: dict[str, Any] = action.get("body", {})
        self.names = self._url.names.union(
            *(template.names for _, template in self._headers),
            names_in(self._query, "action.query"),
            names_in(self._auth, "action.auth"),
            names_in(self._body, "action.body"),
        )
        self.written_url: str = action["url"]
        self._ready: Filled | None = None

    def filled(self, values: Mapping[str, str]) -> Filled:
        """The request with these secrets.

        Raises:
            SecretError: a secret is missing, or not allowed where it is referred to.
            EgressRefusedError: the URL, which came from a secret, is not a URL.
        """
        if self._ready is not None:
            return self._ready
        url = _with_query(self._url.fill(values), fill_tree(self._query, "action.query", values))
        filled = Filled(url, read_url(url), self._filled_headers(values), self._filled_body(values))
        if not self.names:
            self._ready = filled
        return filled

    def _filled_headers(self, values: Mapping[str, str]) -> Headers:
        headers = [(name, template.fill(values)) for name, template in self._headers]
        given = {name.lower() for name, _ in headers}
        if "content-type" not in given:
            headers.extend(("Content-Type", _CONTENT_TYPES[kind]) for kind in self._body)
        if "user-agent" not in given:
            headers.append(("User-Agent", USER_AGENT))
        if self._auth:
            headers.append(("Authorization", _authorization(self._auth, values)))
        return tuple(headers)

    def _filled_body(self, values: Mapping[str, str]) -> bytes | None:
        for kind, written in self._body.items():
            filled = fill_tree(written, f"action.body.{kind}", values)
            if kind == "text":
                return str(filled).encode()
            return msgspec.json.encode(filled) if kind == "json" else _encoded(filled).encode()
        return None

    def outgoing(self, filled: Filled, headers: Mapping[str, str]) -> Outgoing:
        """Return the request as it is sent, with the headers of this attempt."""
        return Outgoing(
            self.method, filled.url, (*filled.headers, *headers.items()), filled.body, self._connect, self._total,
            self._redirects, verify=self._verify,
        )  # fmt: skip


def headers_of_run(
    schedule_id: str, start: Start, body: bytes | None, now: int, signer: Signer | None
) -> dict[str, str]:
    """Return the headers that identify the run to the receiver, signed where there is a signer."""
    run = run_id(schedule_id, start.kind, start.run_for)
    if signer is None:
        return run_headers(run_id=run, scheduled_for=start.run_for, attempt=start.attempt)
    return signer.headers(run_id=run, body=body or b"", sent_at=now, scheduled_for=start.run_for, attempt=start.attempt)


@lru_cache(maxsize=4_096)
def job_of(definition: str) -> HttpJob:
    """The job of a stored definition, JSON."""
    return HttpJob(definition_of(definition).action)


def _with_query(url: str, query: Mapping[str, Any]) -> str:
    if not query:
        return url
    bare = url.partition("#")[0]
    joint = "" if bare.endswith(("?", "&")) else "&" if "?" in bare else "?"
    return f"{bare}{joint}{_encoded(query)}"


def _encoded(pairs: Mapping[str, Any]) -> str:
    return "&".join(
        f"{quote_plus(name)}={quote_plus(_text(one))}"
        for name, value in pairs.items()
        for one in (value if isinstance(value, list) else [value])
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _authorization(auth: Mapping[str, Any], values: Mapping[str, str]) -> str:
    if "bearer" in auth:
        return "Bearer " + Template(auth["bearer"], "header", "action.auth.bearer").fill(values)
    place = "action.auth.basic"
    user, password = (
        Template(auth["basic"][part], "text", f"{place}.{part}").fill(values) for part in ("user", "password")
    )
    if ":" in user:
        raise SecretReferenceError(f"{place}.user", "its value holds a colon, which would end it")
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
