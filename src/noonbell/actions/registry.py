"""All actions in one place: which kinds there are, how each is checked, and how a start becomes a call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noonbell.actions.callback import EXAMPLE, Call, callback_preparer, check_callback, is_async
from noonbell.actions.command import Commands, check_command, prepare_command
from noonbell.actions.delivery import Deliverer
from noonbell.actions.egress import Egress
from noonbell.actions.http.definition import check_http
from noonbell.actions.http.http_jobs import HttpJobs
from noonbell.actions.http.slots import HttpLimits
from noonbell.actions.message import check_message, check_template, message_of
from noonbell.actions.results import Finished, Prepared
from noonbell.actions.targets import Target, TargetLike, as_target
from noonbell.actions.targets.target import ChannelDispatcher
from noonbell.core.records import Start, StoredSchedule
from noonbell.core.turns import definition_of
from noonbell.errors import NoonbellError, ScheduleInvalidError
from noonbell.ports import Clock, Ledger

if TYPE_CHECKING:
    from noonbell.actions.secrets.secrets import Secrets

_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "callback": check_callback,
    "command": check_command,
    "http": check_http,
    "message": check_message,
}
KINDS: Final = tuple(_CHECKS)


def check_action(value: object) -> dict[str, Any]:
    """An action as a person writes it, in the form that is stored."""
    if not isinstance(value, Mapping):
        raise ScheduleInvalidError("action", value, f"must be an object such as {EXAMPLE}")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in _CHECKS:
        raise ScheduleInvalidError("action.kind", kind, f"must be one of {', '.join(KINDS)}")
    return _CHECKS[kind](value)


def check_payload(action: Mapping[str, Any], payload: str | None) -> None:
    """Refuse a payload (JSON) that its action can do nothing with."""
    if action.get("kind") == "message":
        check_template(payload)
    elif action.get("kind") == "http" and payload is not None:
        right = 'is not sent by an http action; put it into its body, such as "body": {"json": …}'
        raise ScheduleInvalidError("payload", msgspec.json.decode(payload), right)


class Actions:
    """The actions of one program: its functions, its targets, and the commands that are allowed."""

    def __init__(
        self,
        clock: Clock,
        *,
        callbacks: Mapping[str, Callable[[Call], Any]] | None = None,
        targets: Mapping[str, TargetLike] | None = None,
        commands: bool | Collection[str] = False,
        secrets: Secrets | None = None,
        egress: Egress | None = None,
        http_limits: HttpLimits | None = None,
    ) -> None:
        self.secrets = secrets
        self.callbacks: dict[str, Callable[[Call], Any]] = dict(callbacks or {})
        self.targets: dict[str, Target] = {}
        self._clock = clock
        self._commands = Commands(commands)
        self._http = HttpJobs(clock, egress=egress, secrets=secrets, limits=http_limits)
        self._deliverer: Deliverer | None = None
        for name, target in (targets or {}).items():
            self.deliver_to(name, target)

    def deliver_to(self, name: str, target: TargetLike) -> None:
        """Let messages reach this target by name."""
        self.targets[name] = as_target(name, target)

    def deliverer(
        self, store: Ledger, *, lane: str, owner: str, dispatcher: ChannelDispatcher | None = None
    ) -> Deliverer:
        """Return the deliverer of a lane's messages to these targets, on behalf of an engine; `wake` wakes it."""
        self._deliverer = Deliverer(
            store, self._clock, lane=lane, owner=owner, targets=self.targets, mask=self.mask, dispatcher=dispatcher
        )
        return self._deliverer

    @property
    def deliveries(self) -> dict[str, int]:
        """Count the deliveries since the engine started: failed tries, messages that arrived or are dead."""
        made = self._deliverer
        counts = (0, 0, 0) if made is None else (made.delivered, made.failed, made.dead)
        return dict(zip(("delivered", "failed", "dead"), counts, strict=True))

    async def know_secrets(self) -> None:
        """Learn the secrets that are to be masked: a callback may show one that no job here has asked for."""
        if self.secrets is not None:
            await self.secrets.know_all()

    def mask(self, text: str) -> str:
        """The text without the secrets that are known here."""
        return text if self.secrets is None else self.secrets.mask(text)

    def wake(self, *, more_due: bool = False) -> None:
        """Wake the deliverer, because there may be messages; `more_due` is passed to it."""
        if self._deliverer is not None:
            self._deliverer.wake(more_due=more_due)

    def request_stop(self) -> None:
        """Keep waiting actions from beginning; their runs are handed back."""
        self._http.request_stop()

    async def close(self) -> None:
        """Close what the actions of an engine have opened; the next one opens it again."""
        await self._http.close()

    def require(self, action: Mapping[str, Any]) -> None:
        """Raise CommandsOffError where the action is a command that the operator does not allow."""
        if action.get("kind") == "command":
            self._commands.require(action)

    def needs_thread(self, stored: StoredSchedule) -> bool:
        """Return whether its action is a plain function, which would hold up the event loop."""
        action = definition_of(stored.columns.definition).action
        if action.get("kind") != "callback":
            return False
        callback = self.callbacks.get(action.get("name", ""))
        return callback is not None and not is_async(callback)

    def knows(self, stored: StoredSchedule) -> bool:
        """Return whether its action can be called here: its function is known, its command is allowed."""
        action = definition_of(stored.columns.definition).action
        kind = action.get("kind")
        if kind == "callback":
            return action.get("name") in self.callbacks
        return kind != "command" or self._commands.allow(action)

    def preparer(self, definition: str) -> Callable[[StoredSchedule, Start], Prepared]:
        """Return what prepares the runs of all schedules with this definition: it says what is called for a start."""
        action = definition_of(definition).action
        kind = action.get("kind")
        if kind == "callback":
            return callback_preparer(self.callbacks, action)
        if kind == "message":
            return lambda stored, start: Prepared(self._message(stored, start), is_async=True)
        if kind == "command":
            return lambda stored, start: prepare_command(self._commands, action, stored, start, self.secrets)
        if kind == "http":
            return self._http.prepare
        raise NoonbellError(f"Unknown kind of action: {kind!r}; known are {', '.join(KINDS)}", kind=kind)

    def _message(self, stored: StoredSchedule, start: Start) -> Callable[[], Any]:
        """Return the call of a message run that has not ended inside its claim: a repeat, or a manual one."""

        async def send() -> Finished:
            return Finished(messages=[message_of(stored, start, self._clock.now())])

        return send
