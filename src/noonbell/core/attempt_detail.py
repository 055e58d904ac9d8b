"""Details of attempts as they are stored: a program's output, a request and its response, a traceback.

A detail is a JSON object in a few bytes. The first byte says how the rest is to be read: `J` is JSON as it is, `Z` is
JSON behind zlib. It is compressed only where that is worth it, and quickly rather than well: it happens on the way of
every request, and most of the gain is in the first level.

A traceback is masked first and cut after that: the head (where the call began) and the tail (the error) stay.
"""

from __future__ import annotations

import traceback
import zlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

import msgspec

from noonbell.errors import ActionError, NoonbellError

_PLAIN: Final = b"J"
_DEFLATED: Final = b"Z"

# Below this the header of zlib and its tables eat what it gains.
_LEAST: Final = 200
_LEVEL: Final = 1

LONGEST_TRACEBACK: Final = 8_192
"""The most characters of a traceback that are stored."""

# Frames before the first one of the program itself: they are the same for every attempt.
_CALLERS: Final = ("noonbell.engine.", "asyncio.", "concurrent.")

_encode = msgspec.json.Encoder().encode


def pack(detail: dict[str, Any]) -> bytes:
    """A detail as it is stored."""
    text = _encode(detail)
    if len(text) >= _LEAST:
        deflated = zlib.compress(text, _LEVEL)
        if len(deflated) < len(text):
            return _DEFLATED + deflated
    return _PLAIN + text


def unpack(packed: bytes) -> dict[str, Any]:
    """The detail that was packed.

    Raises:
        ValueError: these bytes are not a packed detail.
    """
    first, rest = packed[:1], packed[1:]
    try:
        if first == _DEFLATED:
            rest = zlib.decompress(rest)
        elif first != _PLAIN:
            raise ValueError(f"A packed detail begins with J or Z, not with {first!r}")
        return msgspec.json.decode(rest, type=dict[str, Any])
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"The packed detail is damaged: {error}") from None


def has_traceback(error: BaseException) -> bool:
    """Return whether the traceback of an attempt's error adds to its message.

    An action's own failure (a status, an exit code) comes from this package, and so does the refusal of an action that
    cannot be called: their messages are complete.
    """
    if not isinstance(error, NoonbellError):
        return True
    return not isinstance(error, ActionError) and any(_frames_of_the_program(error.__traceback__))


def traceback_text(error: BaseException, mask: Callable[[str], str] | None = None) -> str:
    """Render the traceback of an error without secrets, at most LONGEST_TRACEBACK characters of it.

    The frames of the engine that made the call are left out. Nothing that an error does while it is rendered comes out
    of here.
    """
    try:
        trace = _without_callers(error.__traceback__)
        whole = "".join(traceback.TracebackException(type(error), error, trace, compact=True).format())
        text = whole.encode("utf-8", "backslashreplace").decode().rstrip()
    except BaseException as second:  # noqa: BLE001 - a broken error must not keep its run from being recorded
        text = f"(the traceback of {type(error).__name__} could not be rendered: {type(second).__name__})"
    return _cut(text if mask is None else mask(text))


def with_traceback(packed: bytes | None, text: str) -> bytes:
    """Return a packed detail with a traceback in it."""
    return pack({**({} if packed is None else unpack(packed)), "traceback": text})


def _frames_of_the_program(trace: TracebackType | None) -> list[str]:
    modules = []
    while trace is not None:
        modules.append(str(trace.tb_frame.f_globals.get("__name__", "")))
        trace = trace.tb_next
    return [name for name in modules if not f"{name}.".startswith(("noonbell.", *_CALLERS))]


def _without_callers(trace: TracebackType | None) -> TracebackType | None:
    found = trace
    while found is not None and f"{found.tb_frame.f_globals.get('__name__', '')}.".startswith(_CALLERS):
        found = found.tb_next
    return found or trace


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TRACEBACK:
        return text
    left_out = f"\n… {len(text) - LONGEST_TRACEBACK + 40} characters left out …\n"
    half = (LONGEST_TRACEBACK - len(left_out)) // 2
    return f"{text[:half]}{left_out}{text[-half:]}"
