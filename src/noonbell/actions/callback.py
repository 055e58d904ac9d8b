"""The `callback` action: a function of the program, called by the name under which it was registered.

    {"kind": "callback", "name": "report"}

The function is given a `Call`. Whatever it raises is the failure of the attempt; an `async def` runs on the event loop,
any other in a thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from types import FunctionType, MethodType
from typing import Any, Final

import msgspec

from noonbell.actions.checking import known_only, text
from noonbell.actions.results import Prepared
from noonbell.core.ids import run_id
from noonbell.core.instants import moment
from noonbell.core.records import Start, StoredSchedule
from noonbell.errors import NoonbellError

EXAMPLE: Final = '{"kind": "callback", "name": "report"}'


class Call(msgspec.Struct, frozen=True):
    """The facts of a run that a callback is called with. `run_id` is the same for every attempt of a run."""

    run_id: str
    schedule_id: str
    name: str
    scheduled_for: datetime
    attempt: int
    manual: bool
    payload: Any


def check_callback(action: Mapping[str, Any]) -> dict[str, Any]:
    """The action in the form that is stored."""
    known_only(action, ("kind", "name"), EXAMPLE)
    return {"kind": "callback", "name": text("action.name", action.get("name"))}


def callback_preparer(
    callbacks: Mapping[str, Callable[[Call], Any]], action: Mapping[str, Any]
) -> Callable[[StoredSchedule, Start], Prepared]:
    """Return what prepares the runs of all schedules with this action."""
    name = action.get("name", "")
    callback = callbacks.get(name)
    if callback is None:
        known = ", ".join(sorted(callbacks)) or "none"
        raise NoonbellError(f'No callback named "{name}" is registered; registered: {known}', name=name)
    on_loop = is_async(callback)
    return lambda stored, start: Prepared(_WithCall(callback, stored, start), on_loop)


class _WithCall(msgspec.Struct, frozen=True, gc=False):
    """A callback and its run: thousands of these may wait for their turn, so the `Call` is made when that comes."""

    callback: Callable[[Call], Any]
    stored: StoredSchedule
    start: Start

    def __call__(self) -> Any:
        stored, start = self.stored, self.start
        columns, schedule_id, kind, run_for = stored.columns, stored.schedule_id, start.kind, start.run_for
        payload = columns.payload
        return self.callback(
            Call(
                run_id(schedule_id, kind, run_for), schedule_id, columns.name, moment(run_for), start.attempt,
                kind == "manual", None if payload is None else msgspec.json.decode(payload),
            )
        )  # fmt: skip


def is_async(callback: Callable[[Call], Any]) -> bool:
    """Return whether it runs on the event loop. Called at every run, so async functions take a short way."""
    called = callback.__func__ if type(callback) is MethodType else callback
    if type(called) is FunctionType and called.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    return inspect.iscoroutinefunction(callback)
