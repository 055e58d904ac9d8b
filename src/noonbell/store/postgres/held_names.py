"""The names that a store holds: their leases, the thread that keeps them, and the hints that it hears."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future

from noonbell.errors import StoreError
from noonbell.store.postgres import hints
from noonbell.store.postgres.connection import Connections
from noonbell.store.postgres.leases import Covered, Lease, LeaseKeeper, answer


class HeldNames:
    """The names that one store holds. With the first of them a thread begins that keeps the leases."""

    def __init__(self, connections: Connections, *, lease_ttl: float, longest_seconds: float) -> None:
        """`longest_seconds` is how long a transaction that depends on a lease may take."""
        self.lease_ttl = lease_ttl
        self.keeper: LeaseKeeper | None = None
        self.leases: dict[str, Lease] = {}  # by name
        self._connections = connections
        self._longest_seconds = longest_seconds
        self._releasing: set[Future[None]] = set()
        self._subscribed: list[tuple[str, Callable[[int], None]]] = []

    async def hold(self, name: str, holder: str) -> Lease:
        keeper = self.keeper
        if keeper is None:
            keeper = self.keeper = LeaseKeeper(
                self._connections.connect,
                ttl_seconds=self.lease_ttl,
                where=self._connections.where,
                on_hint=self._hint_from_thread(),
            )
        keeper.uses += 1
        try:
            token = await keeper.take(name, holder)
        except BaseException:
            if self._no_longer_used(keeper):
                keeper.end()
            raise
        lease = self.leases[name] = Lease(name, token, self._release)
        return lease

    def kill(self) -> None:
        keeper, self.keeper = self.keeper, None
        self.leases.clear()
        self._releasing.clear()
        if keeper is not None:
            keeper.end()

    async def released(self) -> None:
        """Wait until what was released is gone from the database."""
        while self._releasing:
            with contextlib.suppress(StoreError):
                await answer(self._releasing.pop())

    def _release(self, lease: Lease) -> None:
        if self.leases.get(lease.name) is not lease or self.keeper is None:
            return  # it went with a handle that was killed
        del self.leases[lease.name]
        keeper = self.keeper
        with contextlib.suppress(StoreError):
            self._releasing.add(keeper.let_go(lease.token, last=self._no_longer_used(keeper)))

    def _no_longer_used(self, keeper: LeaseKeeper) -> bool:
        keeper.uses -= 1
        if keeper.uses or self.keeper is not keeper:
            return False
        self.keeper = None
        return True

    # --- what the leases cover ------------------------------------------------------------------------------------

    def covered(self, *names: str) -> Covered:
        """Return the leases that this store took on some of these names."""
        leases = [self.leases[name] for name in names if name in self.leases]
        return Covered(leases, self._connections.where, self._longest_seconds)

    @property
    def in_doubt(self) -> bool:
        return self.keeper is not None and self.keeper.in_doubt

    @property
    def clock_offset_us(self) -> int:
        return 0 if self.keeper is None else self.keeper.clock_offset_us

    # --- hints ----------------------------------------------------------------------------------------------------

    def subscribe(self, lane: str, wake: Callable[[int], None]) -> Callable[[], None]:
        pair = (lane, wake)
        self._subscribed.append(pair)

        def end() -> None:
            if pair in self._subscribed:
                self._subscribed.remove(pair)

        return end

    def _hint_from_thread(self) -> Callable[[str], None]:
        loop = asyncio.get_running_loop()

        def forward(payload: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
                loop.call_soon_threadsafe(self._on_hint, payload)

        return forward

    def _on_hint(self, payload: str) -> None:
        hint = hints.read(payload)
        if hint is not None:
            for lane, wake in list(self._subscribed):
                if lane == hint[0]:
                    wake(hint[1])
