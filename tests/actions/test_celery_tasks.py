"""Celery as a target: a real broker, and a real worker in a process of its own."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from noonbell.actions.message import message_of
from noonbell.actions.targets import BatchTarget, CeleryTasks
from noonbell.errors import DeliveryError, ScheduleInvalidError, TargetAwayError
from tests.actions.conftest import MIDNIGHT, start_at, stored_with
from tests.patience import PATIENCE_SECONDS
from tests.redis_server import PASSWORD, RedisServer

ROOT = Path(__file__).resolve().parents[2]


def bodies(count: int, start: int = 0, kind: str | None = None) -> list[str]:
    action = {"kind": "message", "to": "x"} | ({} if kind is None else {"type": kind})
    stored = stored_with(action, {"text": "Grüße"})
    return [message_of(stored, start_at(MIDNIGHT + number), 5).body for number in range(start, start + count)]


def id_of(number: int) -> str:
    return f"abc:scheduled:{MIDNIGHT + number}"


def broker_of(server: RedisServer) -> str:
    return server.url.replace("unix://", "redis+socket://")


@pytest.fixture
def broker(redis_server: RedisServer) -> str:
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    return broker_of(redis_server)


def queued(server: RedisServer, queue: str = "celery") -> list[dict[str, Any]]:
    """The headers of what waits in a queue, oldest first."""
    with redis.Redis.from_url(server.url) as client:
        found: Any = client.lrange(queue, 0, -1)
    return [json.loads(one)["headers"] for one in reversed(found)]


class Worker:
    """A worker that runs, and what it has written."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path, errors: Path) -> None:
        self.process, self.file, self.errors = process, file, errors

    async def has_received(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(lines := self.file.read_text().splitlines()) < count:
                assert self.process.poll() is None, self.errors.read_text()
                await asyncio.sleep(0.05)
        return [json.loads(line) for line in lines]


@pytest.fixture
def worker(broker: str, tmp_path: Path) -> Iterator[Worker]:
    file, errors = tmp_path / "received", tmp_path / "errors"
    file.touch()
    # its own warnings are not ours: it has one for root
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    with errors.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "tests.actions.celery_worker", "--quiet", "worker", "-Q",
             "usual,other", "--pool", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat"],
            cwd=ROOT, env=environment | {"RECEIVED_BROKER": broker, "RECEIVED_FILE": str(file)},
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
        )  # fmt: skip
    yield Worker(process, file, errors)
    process.kill()
    process.wait()


async def test_from_messages_to_a_worker(broker: str, worker: Worker) -> None:
    """A fixed task in its queue, a task by type with the data as keyword arguments, and one repeat."""
    fixed = CeleryTasks(broker, "letters.note", queue="usual")
    by_type = CeleryTasks(broker, {"letter.kept": "letters.keep"}, queue="other", arguments="kwargs")
    events = bodies(20)
    await fixed.deliver_many(events)
    await by_type.deliver_many(bodies(1, kind="letter.kept"))
    await fixed.deliver(events[0])
    await fixed.close()
    await by_type.close()
    got = await worker.has_received(22)
    noted = [one for one in got if one["task"] == "letters.note"]
    assert [one["id"] for one in noted] == [*(id_of(number) for number in range(20)), id_of(0)]
    assert [one["args"] for one in noted[:20]] == [[msgspec.json.decode(body)] for body in events]
    (kept,) = (one for one in got if one["task"] == "letters.keep")
    assert kept["id"] == id_of(0)
    assert kept["args"] == []
    assert kept["kwargs"]["text"] == "Grüße"
    assert kept["kwargs"]["source"]["channel"] == "scheduler"


# --- what is sent -----------------------------------------------------------------------------------------------------


async def test_many_are_sent_in_order_in_one_pipeline(redis_server: RedisServer, broker: str) -> None:
    target = CeleryTasks(broker, "a.task", arguments="data")
    with redis.Redis.from_url(redis_server.url) as client:
        await target.deliver_many(bodies(1))
        read = client.info("stats")["total_reads_processed"]
        await target.deliver_many(bodies(500, 1))
        rounds = client.info("stats")["total_reads_processed"] - read
    await target.close()
    assert [headers["id"] for headers in queued(redis_server)] == [id_of(number) for number in range(501)]
    assert rounds < 250  # large writes come in pieces; a round trip for each would be 500


async def test_an_application_of_the_user_is_used_with_its_own_routes(redis_server: RedisServer, broker: str) -> None:
    from celery import Celery

    app = Celery("mine", broker=broker, set_as_current=False)
    app.conf.update(task_routes={"a.task": {"queue": "routed"}})
    target = CeleryTasks(app, "a.task")
    await target.deliver_many(bodies(2))
    await target.close()
    await target.deliver_many(bodies(1, 2))  # opened again
    await target.close()
    assert [(headers["task"], headers["id"]) for headers in queued(redis_server, "routed")] == [
        ("a.task", id_of(number)) for number in range(3)
    ]


@pytest.mark.parametrize("results", [False, True])
async def test_results_are_kept_where_they_are_wanted(redis_server: RedisServer, broker: str, results: bool) -> None:
    target = CeleryTasks(broker, "a.task", results=results)
    await target.deliver_many(bodies(1))
    await target.close()
    assert [headers["ignore_result"] for headers in queued(redis_server)] == [not results]


async def test_the_client_works_in_a_thread_that_does_not_hold_up_the_end(broker: str) -> None:
    target = CeleryTasks(broker, "a.task")
    before = set(threading.enumerate())
    seen: list[threading.Thread] = []
    real = target._send

    def send(tasks: Any) -> None:
        seen.append(threading.current_thread())
        real(tasks)

    target._send = send  # type: ignore[method-assign]  # to see where it is called
    await target.deliver_many(bodies(1))
    await target.close()
    assert seen[0] not in before
    assert seen[0].daemon


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_a_type_without_a_task_is_refused_before_anything_is_sent(redis_server: RedisServer, broker: str) -> None:
    target = CeleryTasks(broker, {"known": "a.task"})
    with pytest.raises(DeliveryError, match='no task is named for the type "other"; named: known') as failed:
        await target.deliver_many([*bodies(2, kind="known"), *bodies(1, 2, kind="other")])
    assert not isinstance(failed.value, TargetAwayError)
    await target.close()
    assert queued(redis_server) == []


async def test_a_task_that_cannot_be_written_is_refused_and_does_not_stop_others(
    redis_server: RedisServer, broker: str
) -> None:
    from celery import Celery

    app = Celery("mine", broker=broker, set_as_current=False)
    app.conf.update(task_routes=lambda name, args, kwargs, options, **_: {"headers": {"odd": {"no", "json"}}})
    target = CeleryTasks(app, "a.task")
    with pytest.raises(DeliveryError) as failed:
        await target.deliver_many(bodies(1))
    assert not isinstance(failed.value, TargetAwayError)
    app.conf.task_routes = None
    app.amqp.flush_routes()
    app.amqp.router = app.amqp.Router()
    await target.deliver_many(bodies(1, 1))
    await target.close()
    assert [headers["id"] for headers in queued(redis_server)] == [id_of(1)]


def app_that_refuses(broker: str, refused: set[str], queue: str) -> Any:
    """An application whose router finds no way for these, and takes all others to the queue."""
    from celery import Celery

    def route(name: str, args: Any, kwargs: Any, options: Any, **_: Any) -> dict[str, str]:
        if args[0]["id"] in refused:
            raise KeyError("no such customer")
        return {"queue": queue}

    app = Celery("mine", broker=broker, set_as_current=False)
    app.conf.update(task_routes=route)
    return app


async def test_a_task_that_a_router_fails_at_is_refused_and_nothing_of_the_batch_goes_out(
    redis_server: RedisServer, broker: str
) -> None:
    app = app_that_refuses(broker, {id_of(3)}, "passing")
    # several commands for each task
    app.conf.task_queues = {"passing": {"exchange": "passing", "queue_arguments": {"x-expires": 600_000}}}
    target = CeleryTasks(app, "a.task")
    with pytest.raises(DeliveryError, match="no such customer") as failed:
        await target.deliver_many(bodies(4))
    assert not isinstance(failed.value, TargetAwayError)
    assert queued(redis_server, "passing") == []
    await target.deliver_many(bodies(3))
    await target.close()
    assert [headers["id"] for headers in queued(redis_server, "passing")] == [id_of(number) for number in range(3)]


async def test_what_went_out_before_a_refusal_does_not_go_out_again_with_its_half() -> None:
    """A broker that is sent one after the other, as RabbitMQ is."""
    app = app_that_refuses("memory://", {id_of(2)}, "one-by-one")
    target = CeleryTasks(app, "a.task")
    with pytest.raises(DeliveryError, match="no such customer"):
        await target.deliver_many(bodies(4))
    await target.deliver_many(bodies(2))
    await target.deliver_many(bodies(1, 3))
    await target.deliver_many(bodies(1))  # a repeat
    await target.close()
    found = []
    with app.connection_for_read() as connection:
        waiting = connection.SimpleQueue("one-by-one")
        while waiting.qsize():
            found.append(waiting.get(block=False).headers["id"])
    assert found == [id_of(number) for number in (0, 1, 3, 0)]


async def test_a_broker_that_was_gone_is_found_again() -> None:
    server = RedisServer()
    try:
        target = CeleryTasks(broker_of(server), "a.task", timeout=PATIENCE_SECONDS)
        await target.deliver_many(bodies(1))
        server.halt()
        for _ in range(2):
            with pytest.raises(TargetAwayError) as failed:
                await target.deliver_many(bodies(2, 1))
            assert failed.value.arrived == 0
            assert PASSWORD not in str(failed.value) + repr(target)
        server.start()
        await target.deliver_many(bodies(2, 1))
        await target.close()
        assert [headers["id"] for headers in queued(server)] == [id_of(1), id_of(2)]
    finally:
        server.stop()


async def test_a_wrong_password_is_told_without_it(broker: str) -> None:
    target = CeleryTasks(broker.replace(PASSWORD, "other-secret"), "a.task")
    with pytest.raises(TargetAwayError, match=r"CeleryTasks\('redis\+socket://\*\*\*@") as failed:
        await target.deliver_many(bodies(1))
    await target.close()
    assert "other-secret" not in str(failed.value) + repr(failed.value) + repr(target)


async def test_a_send_that_hangs_is_one_thread_and_no_more(broker: str) -> None:
    target = CeleryTasks(broker, "a.task")
    go, began = threading.Event(), threading.Event()

    def hang(tasks: Any) -> None:
        began.set()
        go.wait(PATIENCE_SECONDS)

    target._send = hang  # type: ignore[method-assign]  # a broker that takes the connection and says nothing
    task = asyncio.ensure_future(target.deliver_many(bodies(1)))
    await asyncio.get_running_loop().run_in_executor(None, began.wait, PATIENCE_SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(TargetAwayError, match="an earlier send has not ended"):
        await target.deliver_many(bodies(1))
    await target.close()
    go.set()


async def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_celery(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("celery"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without_celery)
    with pytest.raises(DeliveryError, match=r"noonbell\[celery\]"):
        await CeleryTasks("redis://localhost", "a.task").deliver_many(bodies(1))


async def test_it_tells_how_it_is(broker: str) -> None:
    target = CeleryTasks(broker, "a.task")
    assert await target.probe() == "answers"
    await target.close()
    away = CeleryTasks("redis://127.0.0.1:1/0", "a.task", timeout=1)
    with pytest.raises(TargetAwayError):
        await away.probe()


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("url", {"app": "cache:6379"}),
        ("task", {"task": ""}),
        ("task", {"task": {}}),
        ("task.a", {"task": {"a": 5}}),
        ("queue", {"queue": " "}),
        ("arguments", {"arguments": "all"}),
        ("results", {"results": "yes"}),
        ("timeout", {"timeout": 0}),
    ],
)
def test_options_are_checked(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(ScheduleInvalidError) as refused:
        CeleryTasks(**{"app": "redis://cache", "task": "a.task", **options})
    assert refused.value.field == field


def test_it_takes_many_at_once() -> None:
    assert isinstance(CeleryTasks("redis://cache", "a.task"), BatchTarget)
