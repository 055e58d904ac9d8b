"""Celery as a target: each message calls a task by its name.

The id of the task is the id of the message, so that a repeat has the same one. Celery itself does not recognise
repeats: a task that must not be done twice compares `self.request.id`.

Celery's client blocks, so it works in a thread, one at a time for each target, on a connection that is this target's
alone. Its own retries are off: a message that the broker has not taken stays in the outbox and is sent again from
there. With Redis as the broker what is sent together goes in one pipeline (kombu 5.7 and newer); other brokers are sent
one after the other, and RabbitMQ confirms each. Where one of those is refused, what went before it has arrived: it is
remembered, and passed over when it comes again without the one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

import msgspec

from noonbell.actions.targets.own_thread import in_own_thread
from noonbell.actions.targets.target import cleaned, masked, require_seconds, require_switch, require_text
from noonbell.errors import DeliveryError, ScheduleInvalidError, TargetAwayError

if TYPE_CHECKING:
    from celery import Celery

MOST_TOGETHER: Final = 500

# What kombu calls a failure of the broker beside the kinds that a transport lists for itself.
_AWAY: Final = frozenset({"OperationalError", "BatchPublishError"})
# What brokers and their clients call a message that is too large, or cannot be written: the next one may be well.
_REFUSED: Final = frozenset({"ContentTooLarge", "PreconditionFailed", "DataError"})
# Nothing goes out before all of a batch can: what it is made of is bounded elsewhere.
_WHOLE_BATCH: Final = 1 << 30

Arguments = Literal["event", "data", "kwargs"]
ARGUMENTS: Final = get_args(Arguments)

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class _Task(NamedTuple):
    name: str
    task_id: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class CeleryTasks:
    """Tasks of a Celery application, or of any that listens to the broker at this address.

    `task` is the name of the task, or a table from the types of events to names. With `arguments` "event" it is given
    the CloudEvent, with "data" its data, with "kwargs" the data as keyword arguments. `results` lets the workers keep
    what the tasks return. Needs the extra noonbell[celery], and what Celery needs for the broker. The address is the
    operator's own and does not go through egress.
    """

    most_together = MOST_TOGETHER

    def __init__(
        self,
        app: str | Celery,
        task: str | Mapping[str, str],
        *,
        queue: str | None = None,
        arguments: Arguments = "event",
        results: bool = False,
        timeout: float = 10.0,
    ) -> None:
        if isinstance(app, str) and "://" not in app:
            raise ScheduleInvalidError("url", None, "must be the address of a broker, such as redis://cache:6379/0")
        _require_names(task)
        if queue is not None:
            require_text("queue", queue)
        if arguments not in ARGUMENTS:
            raise ScheduleInvalidError("arguments", arguments, f"must be one of {', '.join(ARGUMENTS)}")
        require_switch("results", results)
        require_seconds("timeout", timeout)
        self._app = app
        self._task = task if isinstance(task, str) else dict(task)
        self._queue = queue
        self._arguments = arguments
        self._results = results
        self._timeout = timeout
        self._made: Celery | None = None
        self._producer: Any = None
        self._busy = False
        self._sent: set[str] = set()  # tasks that went out with one that was refused, and have not come again yet

    def __repr__(self) -> str:
        where = masked(self._app) if isinstance(self._app, str) else f"the app {self._app.main}"
        return f"CeleryTasks({where!r})"

    async def deliver(self, body: str) -> None:
        await self.deliver_many((body,))

    async def deliver_many(self, bodies: Sequence[str]) -> None:
        tasks = [self._task_of(body) for body in bodies]  # all of them before the first is sent
        await self._in_turn(lambda: self._send(tasks))

    async def probe(self) -> str:
        await self._in_turn(self._connect)
        return "answers"

    async def close(self) -> None:
        """Close the connection, unless a send that hangs still has it; it goes with the program then."""
        if self._producer is not None and not self._busy:
            await self._in_turn(self._drop)

    def _task_of(self, body: str) -> _Task:
        event = _decode(body)
        kind = event.get("type")
        name = self._task if isinstance(self._task, str) else self._task.get(str(kind))
        if name is None:
            raise DeliveryError(repr(self), f'no task is named for the type "{kind}"; named: {", ".join(self._task)}')
        if self._arguments == "event":
            return _Task(name, event["id"], (event,), {})
        data = event.get("data")
        if self._arguments == "data":
            return _Task(name, event["id"], (data,), {})
        if not isinstance(data, dict):
            raise DeliveryError(repr(self), "its data is not an object, and cannot be keyword arguments")
        return _Task(name, event["id"], (), data)

    # --- in the thread --------------------------------------------------------------------------------------------

    async def _in_turn(self, work: Any) -> None:
        """Run the work in a thread, one at most: raise TargetAwayError while one that was given up still runs."""
        if self._busy:
            raise TargetAwayError(repr(self), "an earlier send has not ended yet")
        self._busy = True

        def run() -> None:
            try:
                work()
            finally:
                self._busy = False

        await in_own_thread(run)

    def _send(self, tasks: Sequence[_Task]) -> None:
        self._connect()
        arrived = 0
        producer = self._producer
        at_once = hasattr(producer, "batch") and hasattr(producer.channel, "create_publish_batch")
        try:
            with producer.batch(_WHOLE_BATCH) if at_once else contextlib.nullcontext():
                for task in tasks:
                    if task.task_id not in self._sent:
                        self._send_one(task, producer)
                    arrived += not at_once
        except Exception as error:  # noqa: BLE001 - what kinds there are is the transport's affair
            away = _is_away(error, producer.__connection__)
            self._drop()
            if away:
                raise TargetAwayError(repr(self), self._error_text(error), arrived) from None
            self._sent.update(task.task_id for task in tasks[:arrived])
            raise DeliveryError(repr(self), self._error_text(error)) from None
        self._sent.difference_update(task.task_id for task in tasks)

    def _send_one(self, task: _Task, producer: Any) -> None:
        self._celery().send_task(
            task.name,
            args=task.args,
            kwargs=task.kwargs,
            task_id=task.task_id,
            queue=self._queue,
            producer=producer,
            retry=False,
            ignore_result=not self._results,
            add_to_parent=False,
        )

    def _connect(self) -> None:
        if self._producer is not None:
            return
        try:
            app = self._celery()
        except ImportError:
            raise TargetAwayError(repr(self), "celery is not installed; pip install noonbell[celery]") from None
        try:
            connection = app.connection_for_write(connect_timeout=self._timeout)
            # Without a bound here its client would go on trying for ever, in a thread that cannot be stopped.
            patience = {"max_retries": 0, **_deadlines(connection.transport_cls, self._timeout)}
            connection.transport_options = {**(connection.transport_options or {}), **patience}
            try:
                connection.ensure_connection(max_retries=0, timeout=self._timeout)
                producer = app.amqp.Producer(connection, auto_declare=False)
                producer.channel  # noqa: B018 - opens it, so that a broker that refuses is noticed here
            except BaseException:
                connection.release()
                raise
        except Exception as error:  # noqa: BLE001 - as above
            raise TargetAwayError(repr(self), self._error_text(error)) from None
        self._producer = producer

    def _celery(self) -> Celery:
        if not isinstance(self._app, str):
            return self._app
        if self._made is None:
            from celery import Celery  # noqa: PLC0415 - an extra, and heavy

            self._made = Celery("noonbell", broker=self._app, set_as_current=False)
        return self._made

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):  # it may be broken; there is nothing to be saved
                producer.__connection__.release()

    def _error_text(self, error: Exception) -> str:
        url = self._app if isinstance(self._app, str) else str(self._app.conf.broker_write_url)
        return f"{type(error).__name__}: {cleaned(str(error), url)}"


def _require_names(task: object) -> None:
    if isinstance(task, Mapping) and task:
        for kind, name in task.items():
            require_text(f"task.{kind}", name)
    elif not isinstance(task, str) or not task.strip():
        raise ScheduleInvalidError("task", task, "must be a name, or a table from the types of events to names")


def _is_away(error: Exception, connection: Any) -> bool:
    """Return whether it was the broker or the way to it, and any other task would have failed as well."""
    names = {type(error).__name__, type(error.__cause__).__name__}
    # kombu's list for Redis has KeyError in it, for the sake of consumers; here that is a router's, or an exchange's
    if names & _REFUSED or isinstance(error, LookupError) or isinstance(error.__cause__, LookupError):
        return False
    listed = connection.connection_errors + connection.channel_errors + connection.recoverable_connection_errors
    return bool(names & _AWAY) or isinstance(error, (OSError, *listed))


def _deadlines(transport: object, seconds: float) -> dict[str, Any]:
    """Return the options that make a transport give up in time, and wait until the broker has a message for certain."""
    name = str(transport)
    if "redis" in name or "sentinel" in name:
        return {"socket_timeout": seconds, "socket_connect_timeout": seconds}
    if "amqp" in name:
        return {"confirm_publish": True, "read_timeout": seconds, "write_timeout": seconds}
    return {}
