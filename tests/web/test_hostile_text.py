"""Text from people and from jobs is text: nothing that they write becomes an element, an attribute or a script."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noonbell.web import attempt_view as exchange
from noonbell.web.rendering import environment, segment
from tests.web.conftest import ACTION, Browser, Parsed
from tests.web.test_pages import ran

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}${7*7}<!--"


def refuse_markup(page: str) -> None:
    """Nothing of EVIL has become more than text."""
    parsed = Parsed(page)
    assert [attrs for attrs in parsed.all("script") if not str(attrs.get("src", "")).startswith("/static/")] == []
    assert parsed.all("img") == []
    assert [(tag, name) for tag, attrs in parsed.elements for name in attrs if name.startswith("on")] == []
    assert "<!--" not in page
    assert "{{49}}" not in page


async def evil_schedule(browser: Browser) -> str:
    """A schedule with EVIL in every field that takes a text."""
    schedules = browser.service.schedules
    policy = await schedules.create_quiet_hours(EVIL, [], policy_id=EVIL)
    made = await schedules.create(
        schedule_id=EVIL, name=EVIL, type="interval", spec="3600", tags=[EVIL], payload={EVIL: EVIL},
        quiet_hours_policy_id=policy.policy_id, action={"kind": "callback", "name": EVIL},
    )  # fmt: skip
    return made.schedule_id


async def test_pages_of_a_hostile_schedule(browser: Browser) -> None:
    schedule_id = await evil_schedule(browser)
    run_id = await ran(browser, schedule_id)
    base = f"/schedules/{segment(schedule_id)}"
    for path in (
        "/", "/schedules", base, f"{base}/edit", f"{base}/why", f"/schedules/new?like={segment(schedule_id)}",
        f"/schedules?q={segment(EVIL)}&tag={segment(EVIL)}", f"/runs/{segment(run_id)}",
    ):  # fmt: skip
        page = await browser.read(path)
        assert "&lt;script&gt;" in page, path
        refuse_markup(page)


FIELDS = (
    "when timezone name kind method url headers body_kind body auth_kind bearer auth_user auth_password "
    "argv command cwd env to message_type callback payload more attempts delay_seconds strategy "
    "max_delay_seconds catch_up_policy overlap tags jitter_seconds start_at end_at catch_up_cap "
    "retry_vs_new retry_jitter schedule_id quiet_hours_policy_id dst"
).split()


@pytest.mark.parametrize("path", ["/schedules/new", "/schedules/preview", "/schedules/test"])
async def test_every_input_comes_back_as_text(browser: Browser, path: str) -> None:
    every: dict[str, Any] = dict.fromkeys(FIELDS, EVIL)
    answer = await browser.post(path, **every)
    assert answer.status_code in (200, 422)
    refuse_markup(answer.text)
    assert answer.text.count("&lt;script&gt;") > 15
    for field in FIELDS:
        usual: dict[str, Any] = {"when": "every hour", "kind": "http", "url": "http://127.0.0.1:9/"}
        by_script = await browser.post(path, script=path != "/schedules/new", **(usual | {field: EVIL}))
        refuse_markup(by_script.text)


async def test_what_is_wrong_in_an_address_comes_back_as_text(browser: Browser) -> None:
    for path in (f"/schedules/{'x'}%3Cscript%3E", "/runs/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "/schedules?cursor=<b>"):
        refuse_markup((await browser.get(path)).text)
    for query in ("at", "before", "day"):
        await browser.service.schedules.create(schedule_id=query, type="interval", spec="60", action=ACTION)
        refuse_markup((await browser.client.get(f"/schedules/{query}", params={query: EVIL})).text)
        refuse_markup((await browser.client.get(f"/schedules/{query}/why", params={query: EVIL})).text)


def details() -> list[dict[str, Any]]:
    http = {
        "kind": "http",
        "request": {"method": EVIL, "url": EVIL, "headers": [[EVIL, EVIL]], "body": EVIL},
        "response": {"status": 200, "headers": [[EVIL, EVIL]], "body": EVIL, "cut": True, "bytes": 5, "url": EVIL,
                     "redirects": 1, "packed": EVIL},
        "error": {"kind": EVIL, "message": EVIL},
        "duration_ms": 1.5, "triggered_by": EVIL, "attempt": 1,
    }  # fmt: skip
    as_json = json.dumps({EVIL: [EVIL]})
    return [
        http,
        http | {"response": None},
        http | {"request": {"method": "GET", "url": "http://x", "headers": [], "body": as_json}},
        {"exit_code": 1, "stdout": EVIL, "stderr": EVIL, "stdout_cut": True, "stderr_cut": False, "reason": EVIL},
        {EVIL: EVIL},
    ]


@pytest.mark.parametrize("detail", details())
def test_what_a_job_has_put_out_is_text(detail: dict[str, Any]) -> None:
    source = '{% from "parts/exchange.html" import exchange %}{{ exchange(shown) }}'
    page = environment().from_string(source).render(shown=exchange.view_of(detail))
    assert "&lt;script&gt;" in page
    refuse_markup(page)


# --- made readable ----------------------------------------------------------------------------------------------------


def test_bodies_are_made_readable() -> None:
    shown = exchange.body_of('{"a":[1,"é"]}')
    assert shown is not None
    assert (shown.kind, shown.text) == ("JSON", '{\n  "a": [\n    1,\n    "é"\n  ]\n}')
    cut = exchange.body_of('{"a":', cut=True, size=5)
    assert cut is not None
    assert (cut.kind, cut.text) == ("text", '{"a":')
    assert "cut after 5 bytes" in cut.remark
    binary = exchange.body_of({"base64": "AAEC"})
    assert binary is not None
    assert binary.remark == "No text: 3 bytes"
    long = exchange.body_of("x" * 100_000)
    assert long is not None
    assert len(long.text) == exchange.MOST_SHOWN
    assert "of 100,000 characters" in long.remark
    assert exchange.body_of(None) is None
    assert exchange.view_of(None) is None
