"""The schedules that are put through deaths and failures: every kind, and each policy that a fault might upset."""

from __future__ import annotations

from typing import Any, Final

QUICK: Final = {"kind": "callback", "name": "quick"}
SLOW: Final = {"kind": "callback", "name": "slow"}
EVERY_MINUTE: Final = "* * * * *"
EDITED: Final = tuple(f"edited-{n}" for n in range(3))
AT_MOST_ONCE: Final = "at-most-once"
ONCE: Final = {"catch_up_policy": "run_once"}

# The first two of every six minutes, in the hours that a campaign may see.
QUIET_HOURS: Final = [
    {
        "weekdays": list(range(7)),
        "from": f"{hour:02}:{minute:02}",
        "to": f"{hour:02}:{minute + 2:02}",
        "timezone": "UTC",
    }
    for hour in range(4)
    for minute in range(0, 60, 6)
]


def is_quiet(minute: int) -> bool:
    """Whether a minute since 1970 lies in them."""
    return minute // 60 % 24 < 4 and minute % 6 < 2


def declared() -> list[dict[str, Any]]:
    """Each as the fields of `create`."""
    return [
        *(_cron(f"skip-{n}", catch_up_policy="skip") for n in range(3)),
        *(_cron(f"once-{n}", **ONCE) for n in range(3)),
        _cron("capped", catch_up_policy="run_all_capped", catch_up_cap=4),
        _cron("slow", action=SLOW, **ONCE),
        _cron("allow", action=SLOW, overlap="allow", **ONCE),
        _cron("overlap-skip", action=SLOW, overlap="skip", **ONCE),
        _cron("plain", action={"kind": "callback", "name": "plain"}, **ONCE),
        _cron(
            "flaky",
            action={"kind": "callback", "name": "flaky"},
            retry={"attempts": 3, "delay_seconds": 2, "strategy": "fixed"},
            **ONCE,
        ),
        _cron(AT_MOST_ONCE, at_most_once=True, **ONCE),
        _cron("quiet", quiet_hours_policy_id="still", **ONCE),
        _cron("jitter", jitter_seconds=20, **ONCE),
        *(_interval(f"interval-{n}", 7 + 4 * n) for n in range(3)),
        *(_message(_cron(f"send-{n}", **ONCE)) for n in range(3)),
        _message(_interval("send-often", 5)),
        *(_cron(key, **ONCE) for key in EDITED),
        _cron("asked", spec="0 0 1 1 *"),
    ]


def _cron(schedule_id: str, **fields: Any) -> dict[str, Any]:
    return {"schedule_id": schedule_id, "type": "cron", "spec": EVERY_MINUTE, "action": QUICK, **fields}


def _interval(schedule_id: str, seconds: int) -> dict[str, Any]:
    return {"schedule_id": schedule_id, "type": "interval", "spec": seconds, "action": QUICK, **ONCE}


def _message(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "action": {"kind": "message", "to": "inbox"}, "payload": {"text": "{{scheduled_for}}"}}
