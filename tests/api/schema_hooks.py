"""Hooks of the schemathesis runs: each call has an idempotency key of its own.

A key that comes twice replays the first answer, also for a resource that was deleted since, which schemathesis takes
for one that was lost. Replays have tests of their own.
"""

from __future__ import annotations

import uuid
from typing import Any

import schemathesis


@schemathesis.hook
def before_call(ctx: Any, case: Any, **kwargs: Any) -> None:
    del ctx, kwargs
    for name in case.headers or ():
        if name.lower() == "idempotency-key" and case.meta is not None and case.meta.generation.mode.is_positive:
            case.headers[name] = uuid.uuid4().hex
