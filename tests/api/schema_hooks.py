"""Hooks of the schemathesis runs. They keep out two answers that are right, but look like a resource that was lost.

- Each call has an idempotency key of its own. A key that comes twice replays the first answer, also for a resource that
  was deleted since. Replays have tests of their own.
- API keys are made for the team of the caller. The operator makes the first key of another team and may revoke it, but
  does not see the keys of that team (tests/api/test_keys.py).
"""

from __future__ import annotations

import uuid
from typing import Any

import schemathesis


@schemathesis.hook
def before_call(ctx: Any, case: Any, **kwargs: Any) -> None:
    del ctx, kwargs
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    for name in case.headers or ():
        if name.lower() == "idempotency-key":
            case.headers[name] = uuid.uuid4().hex
    if case.operation.label == "POST /api/v1/keys" and isinstance(case.body, dict):
        case.body.pop("team", None)
