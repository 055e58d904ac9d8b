"""Slots, which bound the requests under way at once, over all and for each host, and order the waiting ones.

A request without a slot waits here, in a future: no thread, no connection. Slots that become free go round: among the
hosts that have a free slot, and for each host among the schedules that wait for it. So a schedule with a thousand
waiting runs gets no more of a host than one with a single run, and a slow host holds `per_host` slots at most.

`take_back` is for a stop: requests that wait, or come later, fail with `NotStartedError` and do not begin. What is
under way goes on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import msgspec

from noonbell.errors import NotStartedError, ScheduleInvalidError


class HttpLimits(msgspec.Struct, frozen=True):
    """Limits on the requests of one engine that are under way: over all, and to one host."""

    total: int = 256
    per_host: int = 16

    def __post_init__(self) -> None:
        for name in ("total", "per_host"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ScheduleInvalidError(f"http_limits.{name}", value, "must be a whole number above 0")


class _Host:
    """One host: its taken slots, and the waiting requests by schedule, in the order of their turns."""

    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.busy = 0
        self.waiting: OrderedDict[int, list[asyncio.Future[None]]] = OrderedDict()  # most rows have one

    def next_in_turn(self) -> asyncio.Future[None] | None:
        """The next one that still waits; its schedule goes to the end of the row."""
        while self.waiting:
            sid, row = self.waiting.popitem(last=False)
            while row:
                waiter = row.pop(0)
                if not waiter.done():  # else its run was cancelled
                    if row:
                        self.waiting[sid] = row
                    return waiter
        return None


class HttpSlots:
    """The slots of one engine; used on its event loop only."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self._busy = 0
        self._hosts: dict[str, _Host] = {}
        # hosts that have a free slot and a waiting request; while it is not empty, all slots are taken
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._taken_back = False

    @property
    def busy(self) -> int:
        return self._busy

    @property
    def waiting(self) -> int:
        return sum(len(row) for host in self._hosts.values() for row in host.waiting.values())

    async def take(self, name: str, sid: int) -> bool:
        """Return when the schedule has a slot of the host; it has to be given back with `give_back`.

        True if it had to wait for one.

        Raises:
            NotStartedError: a stop came first.
        """
        if self._taken_back:
            raise NotStartedError
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = _Host()
        if self._busy < self.limits.total and host.busy < self.limits.per_host:
            # no request can be waiting for this: one that waits for a free slot of a host gets it at once
            self._busy += 1
            host.busy += 1
            return False
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        host.waiting.setdefault(sid, []).append(waiter)
        if host.busy < self.limits.per_host:
            self._ready[name] = None
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.give_back(name)  # the slot came together with the cancellation
            raise  # else its place in the row is passed over when its turn comes
        return True

    def give_back(self, name: str) -> None:
        host = self._hosts[name]
        host.busy -= 1
        self._busy -= 1
        if host.waiting:
            self._ready[name] = None
        self._pass_on()
        self._tidy(name)

    def take_back(self) -> None:
        """Refuse a slot to every request that has none, now and until `reopen`."""
        self._taken_back = True
        for name in list(self._hosts):
            host = self._hosts[name]
            while (waiter := host.next_in_turn()) is not None:
                waiter.set_exception(NotStartedError())
            self._tidy(name)
        self._ready.clear()

    def reopen(self) -> None:
        """Give out slots again."""
        self._taken_back = False

    def _pass_on(self) -> None:
        while self._ready and self._busy < self.limits.total:
            name, _ = self._ready.popitem(last=False)
            host = self._hosts[name]
            waiter = host.next_in_turn()
            if waiter is None:
                self._tidy(name)
                continue
            host.busy += 1
            self._busy += 1
            waiter.set_result(None)
            if host.waiting and host.busy < self.limits.per_host:
                self._ready[name] = None

    def _tidy(self, name: str) -> None:
        """Forget a host that no request uses or waits for."""
        host = self._hosts.get(name)
        if host is not None and not host.busy and not host.waiting:
            del self._hosts[name]
            self._ready.pop(name, None)
