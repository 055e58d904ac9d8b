"""What goes wrong is told as problem+json, names the field, and gives nothing away."""

from __future__ import annotations

import inspect
import json
import logging
from typing import Any

import httpx2
import pytest

from noonbell import errors
from noonbell.api.app import PREFIX, create_app
from noonbell.api.middleware import SECURITY_HEADERS
from noonbell.api.problems import MEDIA_TYPE, of_error, presentable, status_for
from noonbell.api.request_limits import Buckets
from noonbell.errors import AccessNotFoundError, LoginRefusedError, NoonbellError, ScheduleInvalidError
from tests.api.conftest import Client


def kinds(root: type[NoonbellError]) -> set[type[NoonbellError]]:
    return {root} | {one for kind in root.__subclasses__() for one in kinds(kind)}


def test_an_error_that_a_request_can_cause_is_no_error_of_the_server() -> None:
    """A new class of error that nobody has given a status would be a 500: those that stay so are named here."""
    ours = {kind for kind in kinds(NoonbellError) if kind.__module__ == errors.__name__ and status_for(kind) == 500}
    expected = {
        "NoonbellError", "SchedulerAlreadyActiveError", "StopFromTaskError", "ScheduleDriftError", "HostTimeZoneError",
        "InitializationError", "DailyTasksUnavailable", "SettingsInvalidError", "ActionError", "CommandFailedError",
        "HttpJobFailedError", "NotStartedError", "ExitInTaskError", "ReceiveError", "WebhookMalformedError",
        "WebhookRefusedError", "WebhookTooLargeError", "WebhookInProgressError", "WebhookRepeatedError",
        "WebhookUnavailableError",
        "StoreError", "StoreCorruptError", "TaskTryDeserializeError", "TaskMissingFieldError", "TaskInvalidTypeError",
        "TaskInvalidValueError", "TaskInvalidStructureError", "ScheduleViewError", "TimelineError",
    }  # fmt: skip
    assert {kind.__name__ for kind in ours} <= expected


def test_fields_values_and_waits_are_carried_over() -> None:
    problem = of_error(ScheduleInvalidError("action.url", "ftp://x", "must begin with http"))
    assert (problem.status, problem.field, problem.value) == (422, "action.url", "ftp://x")
    assert problem.kind == "schedule-invalid"
    assert of_error(AccessNotFoundError("team", "x")).status == 404
    throttled = of_error(LoginRefusedError("wait", 7))
    assert (throttled.status, throttled.headers) == (429, {"Retry-After": "7"})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"),
        (2**80, str(2**80)),
        ("\ud800", "\\ud800"),
        ({"a": [1, None]}, {"a": [1, None]}),
        ("x" * 5000, "x" * 1000),
        (object, str(object)),
    ],
)
def test_any_value_can_be_shown(value: Any, shown: Any) -> None:
    assert presentable(value) == shown
    json.dumps(presentable(value)).encode()


def test_a_long_tree_is_cut() -> None:
    assert len(json.dumps(presentable(["x" * 100] * 100))) < 2000


async def test_each_kind_of_refusal_is_a_problem(inside: Client) -> None:
    action = {"kind": "http", "url": "https://example.org/"}
    asked = [
        (await inside.anonymous.get(f"{PREFIX}/schedules"), 401),
        (await inside.read.post(f"{PREFIX}/schedules", json={}), 403),
        (await inside.read.get(f"{PREFIX}/schedules/nothing"), 404),
        (await inside.read.get("/nowhere"), 404),
        (await inside.read.put("/healthz"), 405),
        (await inside.write.post(f"{PREFIX}/schedules", json={"nmae": 1}), 422),
        (
            await inside.write.post(
                f"{PREFIX}/schedules", json={"name": "x", "type": "cron", "spec": "61 * * * *", "action": action}
            ),
            422,
        ),
    ]
    for answer, status in asked:
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == MEDIA_TYPE
        told = answer.json()
        assert told["status"] == status
        assert told["title"]
        assert told["detail"]
        assert told["instance"] == f"urn:noonbell:request:{answer.headers['x-request-id']}"
    assert asked[-1][0].json()["value"] == "61 * * * *"
    assert {one["field"] for one in asked[-2][0].json()["errors"]} >= {"nmae", "action"}


async def test_what_nobody_expected_is_in_the_log_and_not_in_the_answer(
    inside: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(inside.service.access, "list_keys", broken)
    with caplog.at_level(logging.ERROR, "noonbell.api"):
        answer = await inside.admin.get(f"{PREFIX}/keys")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert "swordfish" not in answer.text
    assert "Traceback" not in answer.text
    (line,) = [record for record in caplog.records if record.name == "noonbell.api"]
    assert line.noonbell["request_id"] == answer.headers["x-request-id"]  # type: ignore[attr-defined]  # an extra field
    assert "swordfish" in (line.exc_text or logging.Formatter().formatException(line.exc_info))  # type: ignore[arg-type]  # it has one


async def test_a_known_secret_is_masked_in_a_problem(inside: Client) -> None:
    await inside.service.secrets.put("default", "TOKEN", "hunter2-hunter2")
    await inside.service.secrets.resolve("default", [])
    body = {"name": "x", "type": "cron", "spec": "hunter2-hunter2", "action": {"kind": "http", "url": "https://e.org"}}
    answer = await inside.write.post(f"{PREFIX}/schedules", json=body)
    assert answer.status_code == 422
    assert "hunter2" not in answer.text


async def test_secrets_of_another_team_change_nothing_in_an_answer(inside: Client) -> None:
    """Neither can a team break the answers of another, nor can anybody ask whether a text is a secret of another."""
    for name, value in {"A": '"status":404', "B": "noonbell", "C": "swordfish-swordfish"}.items():
        await inside.service.secrets.put("other", name, value)
    await inside.service.secrets.resolve("other", [])
    missing = await inside.read.get(f"{PREFIX}/schedules/nothing")
    assert missing.json()["status"] == 404
    assert missing.json()["type"] == "urn:noonbell:problem:schedule-not-found"
    action = {"kind": "http", "url": "https://e.org"}
    body = {"name": "x", "type": "cron", "spec": "swordfish-swordfish", "action": action}
    guessed = (await inside.write.post(f"{PREFIX}/schedules", json=body)).json()
    assert guessed["value"] == "swordfish-swordfish"
    assert "swordfish-swordfish" in guessed["detail"]


async def test_a_team_cannot_mask_what_programs_go_by(inside: Client) -> None:
    for name, value in {"A": '"status":404', "B": "noonbell", "C": "Not found"}.items():
        await inside.service.secrets.put("default", name, value)
    await inside.service.secrets.resolve("default", [])
    told = (await inside.read.get(f"{PREFIX}/schedules/nothing")).json()
    assert (told["status"], told["type"]) == (404, "urn:noonbell:problem:schedule-not-found")
    assert told["instance"].startswith("urn:noonbell:request:")


async def test_a_secret_is_masked_in_the_errors_of_fields_too(inside: Client) -> None:
    await inside.service.secrets.put("default", "TOKEN", "hunter2-hunter2")
    await inside.service.secrets.resolve("default", [])
    answer = await inside.write.post(f"{PREFIX}/schedules", json={"hunter2-hunter2": 1, "type": ["hunter2-hunter2"]})
    assert len(answer.json()["errors"]) > 1
    assert "hunter2" not in answer.text


async def test_a_request_that_is_too_large(inside: Client) -> None:
    limit = inside.service.settings.largest_body_bytes
    answer = await inside.write.post(f"{PREFIX}/schedules", content=b" " * (limit + 1))
    assert answer.status_code == 413

    async def pieces() -> Any:  # without a length, as a stream is sent
        for _ in range(limit // 100_000 + 1):
            yield b" " * 100_000

    answer = await inside.write.post(
        f"{PREFIX}/schedules", content=pieces(), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 413
    assert answer.headers["content-type"] == MEDIA_TYPE


async def test_every_answer_has_the_headers_that_keep_browsers_safe(inside: Client) -> None:
    for path in ("/healthz", "/login", "/nowhere", f"{PREFIX}/schedules", f"{PREFIX}/openapi.json", "/ping/none"):
        answer = await inside.anonymous.get(path)
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers[name] == value, path
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "http:" not in policy
    assert policy.startswith("default-src 'none'")


async def test_a_request_keeps_the_id_that_it_came_with_if_that_is_a_sane_one(inside: Client) -> None:
    answer = await inside.anonymous.get("/healthz", headers={"X-Request-Id": "from-the-proxy.1"})
    assert answer.headers["x-request-id"] == "from-the-proxy.1"
    for bad in ("a b", "x" * 65, "a;b"):
        answer = await inside.anonymous.get("/healthz", headers={"X-Request-Id": bad})
        assert answer.headers["x-request-id"] != bad


async def test_the_description_names_the_problems_of_every_route(inside: Client) -> None:
    document = (await inside.anonymous.get(f"{PREFIX}/openapi.json")).json()
    operations = [(path, method, one) for path, methods in document["paths"].items() for method, one in methods.items()]
    assert len(operations) > 50
    for path, method, one in operations:
        if one.get("security"):
            assert {"401", "403", "422", "429", "503"} <= one["responses"].keys(), (path, method)
            for status in ("401", "403", "422"):
                assert list(one["responses"][status]["content"]) == [MEDIA_TYPE], (path, method, status)
    assert "HTTPValidationError" not in json.dumps(document)
    assert document["components"]["schemas"]["Problem"]["properties"]["field"]


# --- how many ---------------------------------------------------------------------------------------------------------


def limited(client: Client, **per_minute: int) -> httpx2.AsyncClient:
    """The application of a service whose buckets do not fill again."""
    app = create_app(client.service)
    for name, number in per_minute.items():
        setattr(app.state.limits, name, Buckets(number, lambda: 0.0))
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://service")


async def test_a_key_that_asks_too_often_waits(inside: Client) -> None:
    reader, writer = ({"Authorization": f"Bearer {inside.keys[f'default/{scope}']}"} for scope in ("read", "write"))
    async with limited(inside, keys=60) as client:
        answers = [await client.get(f"{PREFIX}/caller", headers=reader) for _ in range(11)]
        assert [answer.status_code for answer in answers] == [200] * 10 + [429]
        assert answers[-1].headers["retry-after"] == "1"
        assert answers[-1].json()["type"] == "urn:noonbell:problem:too-many-requests"
        assert (await client.get(f"{PREFIX}/caller", headers=writer)).status_code == 200, "another key has its own"


async def test_guessing_keys_uses_up_the_address(inside: Client) -> None:
    guess = {"Authorization": "Bearer nbk_aaaaaaaaaaaa_" + "A" * 43}
    right = {"Authorization": f"Bearer {inside.keys['default/read']}"}
    async with limited(inside, addresses=180) as client:
        statuses = [(await client.get(f"{PREFIX}/caller", headers=guess)).status_code for _ in range(4)]
        assert statuses == [401, 401, 401, 429]
        assert (await client.get(f"{PREFIX}/caller", headers=right)).status_code == 429


async def test_the_login_has_the_same_limit(inside: Client) -> None:
    async with limited(inside, addresses=6) as client:
        assert [(await client.post("/login")).status_code for _ in range(2)] == [415, 429]


def test_the_module_of_problems_has_a_title_for_each_status_it_answers_with() -> None:
    from noonbell.api import problems

    used = {status for _, status in problems._STATUS}
    assert used <= problems.TITLES.keys()
    assert inspect.getdoc(problems)


async def test_a_body_that_is_no_json_and_one_that_is_not_sent_as_json(inside: Client) -> None:
    headers = {"Content-Type": "application/json"}
    broken = await inside.write.post(f"{PREFIX}/schedules", content=b'{"name": ', headers=headers)
    assert broken.status_code == 400
    assert broken.json()["type"] == "urn:noonbell:problem:body-not-json"
    assert broken.json()["detail"].startswith("body is not JSON: ")
    for content_type in (None, "text/plain"):
        headers = {} if content_type is None else {"Content-Type": content_type}
        untyped = await inside.write.post(f"{PREFIX}/schedules", content=b'{"name": "x"}', headers=headers)
        assert untyped.status_code == 422
        assert untyped.json()["detail"] == "body is not sent as JSON: add the header Content-Type: application/json"
        assert "base64" not in untyped.text
        assert "eyJ" not in untyped.text, "nor what it would be in base64"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/runs/none:scheduled:1", "run-not-found"),
        ("/runs/nonsense", "run-not-found"),
        ("/schedules/none", "schedule-not-found"),
    ],
)
async def test_what_was_not_found_is_named(inside: Client, path: str, kind: str) -> None:
    missing = await inside.read.get(f"{PREFIX}{path}")
    assert (missing.status_code, missing.json()["type"]) == (404, f"urn:noonbell:problem:{kind}")
