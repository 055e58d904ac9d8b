"""The policies of an epoch: read from its text over the defaults of its owner, whatever the text holds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noonbell.ledger.policies import EpochPolicies, policies_of

TASK = EpochPolicies(catch_up="run_once", retry_vs_new="preempt", consumes=True)


def test_a_task_has_its_bundle_and_a_schedule_the_defaults() -> None:
    for owner in ("scheduler:default", "periodic:default"):
        assert policies_of('{"dst":"literal"}', owner) == TASK
    for other in ("api", "file:jobs", None, 5):
        assert policies_of("{}", other) == EpochPolicies()


def test_a_stored_policy_comes_before_the_bundle() -> None:
    stored = '{"catch_up":"run_once","dst":"once","overlap":"coalesce","retry":"fixed","retry_vs_new":"finish"}'
    assert policies_of(stored, "periodic:default") == TASK._replace(retry_vs_new="finish", dst="once")


def test_a_definition_is_read_with_what_stands_beside_it() -> None:
    definition: dict[str, Any] = {
        "overlap": "skip", "cap": 3, "jitter_us": 5, "start_at": 7, "end_at": 9, "at_most_once": True,
        "action": {"kind": "message", "to": "inbox"},
    }  # fmt: skip
    stored = {"type": "interval", "catch_up": "run_all_capped", "anchor_at": 6, "quiet_hours_policy_id": "calm"}
    found = policies_of(json.dumps({**stored, "dst": "literal", "definition": definition}), "api")
    assert found == EpochPolicies(
        kind="interval", catch_up="run_all_capped", cap=3, overlap="skip", start_at=7, end_at=9, jitter_us=5,
        anchor_at=6, quiet_hours_policy_id="calm", at_most_once=True, message_to="inbox",
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "x", "[]", "5", "null", None, 5, '{"definition":5,"cap":-1,"jitter_us":"x"}'])
def test_what_cannot_be_read_leaves_the_defaults(text: object) -> None:
    assert policies_of(text, "api") == EpochPolicies()
    assert policies_of(text, "scheduler:default") == TASK
