"""The values that the engine and the actions pass to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from noonbell.core.records import OutboxMessage


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """An action that is ready to be called. One that is not async is called in a thread.

    With `waits` its call takes a function and calls it as it begins: `begun(waited=…)`, if it waited for a slot.
    """

    call: Callable[..., Any]
    is_async: bool
    waits: bool = False


class Finished(msgspec.Struct, frozen=True):
    """The result of a call, to be kept with its end: a detail to record, and messages to be put on their way.

    The detail is packed (`core.detail`). Whatever else a call returns is ignored. An error may carry a `detail` of the
    same kind as an attribute.
    """

    detail: bytes | None = None
    messages: Sequence[OutboxMessage] = ()
