"""The detail of an attempt, made readable: a request and its response, or the output of a program.

Everything here is text for a template, which escapes it. JSON is indented; a body that was cut is marked so; of a body
that is not text the size is shown.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MOST_SHOWN: Final = 64_000
_JSON_UP_TO: Final = 512_000


@dataclass(frozen=True, slots=True)
class Body:
    """A body for a page. `remark` describes the part that is not shown."""

    text: str
    kind: str
    remark: str = ""


def body_of(body: Any, *, cut: bool = False, size: int | None = None) -> Body | None:
    """Return a body for a page, from its stored form: text, {"base64": …} or nothing."""
    if body is None or body == "":
        return None
    if isinstance(body, Mapping):
        return Body("", "binary", f"No text: {_length(body)} bytes{', cut there' if cut else ''}")
    text = str(body)
    kind = "text"
    if not cut and len(text) <= _JSON_UP_TO and text.lstrip()[:1] in ("{", "["):
        try:
            text, kind = json.dumps(json.loads(text), indent=2, ensure_ascii=False), "JSON"
        except (ValueError, RecursionError):
            kind = "text"
    remarks = []
    if len(text) > MOST_SHOWN:
        remarks.append(f"the first {MOST_SHOWN:,} of {len(text):,} characters are shown")
        text = text[:MOST_SHOWN]
    if cut:
        kept = f" after {size:,} bytes" if size is not None else ""
        remarks.append(f"it was longer, and was cut{kept} when it was kept")
    return Body(text, kind, "; ".join(remarks))


def _length(body: Mapping[str, Any]) -> int:
    try:
        return len(base64.b64decode(str(body.get("base64", ""))))
    except (binascii.Error, ValueError):
        return 0


def view_of(detail: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the detail of an attempt for the template of an exchange; None if it has only a traceback."""
    detail = {key: value for key, value in (detail or {}).items() if key != "traceback"}
    if not detail:
        return None
    if detail.get("kind") == "http":
        return _http(detail)
    if "stdout" in detail or "stderr" in detail or "exit_code" in detail:
        return _command(detail)
    return {"kind": "other", "text": json.dumps(detail, indent=2, ensure_ascii=False, default=str)}


def _http(detail: Mapping[str, Any]) -> dict[str, Any]:
    request, response = detail.get("request") or {}, detail.get("response")
    shown: dict[str, Any] = {
        "kind": "http",
        "method": request.get("method", ""),
        "url": request.get("url", ""),
        "headers": request.get("headers") or [],
        "body": body_of(request.get("body")),
        "error": detail.get("error"),
        "duration_ms": detail.get("duration_ms"),
        "triggered_by": detail.get("triggered_by"),
        "response": None,
    }
    if response:
        shown["response"] = {
            "status": response.get("status"),
            "headers": response.get("headers") or [],
            "body": body_of(response.get("body"), cut=bool(response.get("cut")), size=response.get("bytes")),
            "url": response.get("url"),
            "redirects": response.get("redirects"),
            "packed": response.get("packed"),
        }
    return shown


def _command(detail: Mapping[str, Any]) -> dict[str, Any]:
    streams = []
    for name in ("stdout", "stderr"):
        value = detail.get(name)
        cut = bool(detail.get(f"{name}_cut") or (isinstance(value, Mapping) and value.get("cut")))
        text = value.get("text") if isinstance(value, Mapping) and "text" in value else value
        streams.append((name, body_of(text, cut=cut)))
    rest = {key: value for key, value in detail.items() if key not in ("stdout", "stderr", "stdout_cut", "stderr_cut")}
    return {"kind": "command", "streams": streams, "facts": rest}
