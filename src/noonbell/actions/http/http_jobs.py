"""HTTP jobs at work: from a start to its end.

1. The secrets that the definition refers to are resolved and filled in. Where one is missing, the attempt fails here.
2. A slot is waited for (`slots`). A stop that comes first hands the run back as if it had never been claimed.
3. The request is signed and sent, through egress; the client and its connections are shared by all runs of an engine.
4. The answer is judged (`expectation`), and what is to be kept is masked and written down (`record`).

A failure is an `HttpJobFailedError`: its `kind` is egress's own (`dns`, `tls`, `timeout`, …), or `status`, `assertion`
or `secret`. With `retry_after_us` the other side has said when to come back.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from noonbell.actions.egress import Egress, HttpClient, Incoming
from noonbell.actions.http.record import LARGE, Facts, record
from noonbell.actions.http.request import Filled, HttpJob, headers_of_run, job_of
from noonbell.actions.http.retry_after import retry_after_us
from noonbell.actions.http.slots import HttpLimits, HttpSlots
from noonbell.actions.results import Finished, Prepared
from noonbell.actions.secrets.masking import Masker
from noonbell.actions.signatures import Signer
from noonbell.core.attempt_detail import pack
from noonbell.core.records import Start, StoredSchedule
from noonbell.errors import EgressError, HttpJobFailedError, MasterKeyMissingError, SecretError, SigningKeyError
from noonbell.ports import Clock

if TYPE_CHECKING:
    from noonbell.actions.secrets.secrets import Secrets


class Begun(Protocol):
    """Called as the request is about to be sent."""

    def __call__(self, *, waited: bool) -> None: ...


_NO_MASKER: Final = Masker(())
_WRITING_AT_ONCE: Final = 2


def team_of(stored: StoredSchedule) -> str:
    """The team whose secrets a schedule may use."""
    return stored.team


class HttpJobs:
    """The HTTP jobs of one engine: their way out, their secrets, their slots and their connections."""

    def __init__(
        self,
        clock: Clock,
        *,
        egress: Egress | None = None,
        secrets: Secrets | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        self.slots = HttpSlots(HttpLimits() if limits is None else limits)
        self._clock = clock
        self._egress = Egress() if egress is None else egress
        self._secrets = secrets
        self._client: HttpClient | None = None
        self._writers: ThreadPoolExecutor | None = None

    def prepare(self, stored: StoredSchedule, start: Start) -> Prepared:
        return Prepared(partial(self._run, stored, start), is_async=True, waits=True)

    def request_stop(self) -> None:
        """Refuse a slot to all jobs that wait for one; they will not begin any more."""
        self.slots.take_back()

    async def close(self) -> None:
        """Close all connections; the next request opens them again."""
        self.slots.reopen()
        writers, self._writers = self._writers, None
        if writers is not None:
            writers.shutdown(wait=False)
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # --- one attempt ----------------------------------------------------------------------------------------------

    async def _run(self, stored: StoredSchedule, start: Start, begun: Begun | None = None) -> Finished:
        job = job_of(stored.columns.definition)
        team = team_of(stored)
        try:
            values = {} if self._secrets is None else await self._secrets.resolve(team, job.names)
            filled = job.filled(values)
            signer = await self._signer(stored.schedule_id, team) if self._signs(job) else None
        except (SecretError, SigningKeyError, EgressError) as error:
            kind = error.kind if isinstance(error, EgressError) else "secret"
            if begun is not None:
                begun(waited=False)
            raise await self._failure(job, start, team, kind, str(error)) from None
        name = filled.target.host.text
        waited = await self.slots.take(name, stored.sid)
        try:
            if begun is not None:
                begun(waited=waited)
            return await self._send(job, stored, start, filled, signer)
        finally:
            self.slots.give_back(name)

    def _signs(self, job: HttpJob) -> bool:
        able = self._secrets is not None and self._secrets.usable
        if job.sign and not able:
            reason = "the requests of this schedule are to be signed, and no master key is configured to seal its keys"
            raise MasterKeyMissingError("the settings", reason)
        return able and job.sign is not False

    async def _signer(self, schedule_id: str, team: str) -> Signer:
        assert self._secrets is not None  # noqa: S101 - asked in `_signs`
        return Signer([key.key for key in await self._secrets.signing_keys(schedule_id, team)])

    async def _send(
        self, job: HttpJob, stored: StoredSchedule, start: Start, filled: Filled, signer: Signer | None
    ) -> Finished:
        now = self._clock.now()
        request = job.outgoing(filled, headers_of_run(stored.schedule_id, start, filled.body, now, signer))
        began = time.perf_counter()  # the time of uvloop's loop is whole milliseconds
        answer: Incoming | None = None
        try:
            answer = await self._opened().fetch(request)
            failure = job.expectation.failure(answer)
        except EgressError as error:
            failure = error.kind, f"{error.where}: {error.reason}"
        seconds = time.perf_counter() - began
        masker = self._masker(team_of(stored))
        if failure is not None:
            failure = failure[0], masker.text(failure[1])
        facts = Facts(start, job.method, job.written_url, filled, request, answer, failure, seconds)
        detail = await self._written(facts, masker)
        if failure is None:
            return Finished(detail=detail)
        asked = None if answer is None else retry_after_us(answer.status, answer.headers, self._clock.now())
        raise HttpJobFailedError(*failure, detail, retry_after_us=asked)

    async def _failure(self, job: HttpJob, start: Start, team: str, kind: str, reason: str) -> HttpJobFailedError:
        """Return the error for an attempt that sent nothing."""
        masker = self._masker(team)
        message = masker.text(reason)
        facts = Facts(start, job.method, job.written_url, None, None, None, (kind, message), 0.0)
        return HttpJobFailedError(kind, message, await self._written(facts, masker))

    async def _written(self, facts: Facts, masker: Masker) -> bytes:
        """The detail, ready to be kept.

        Large bodies take milliseconds to mask, which others should not wait for, and several times their size
        for that time: so it is done beside the event loop, and for a few at a time. The threads are for nothing else,
        since each that has once done this keeps some of the memory for the next time.
        """
        if facts.size < LARGE:
            return pack(record(facts, masker))
        if self._writers is None:
            self._writers = ThreadPoolExecutor(_WRITING_AT_ONCE, thread_name_prefix="noonbell-records")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writers, lambda: pack(record(facts, masker)))

    def _masker(self, team: str) -> Masker:
        return _NO_MASKER if self._secrets is None else self._secrets.masker(team)

    def _opened(self) -> HttpClient:
        if self._client is None:
            try:
                self._client = self._egress.client(limit=self.slots.limits.total)
            except ImportError:
                raise EgressError(
                    "client", "this program", "aiohttp is not installed; pip install noonbell[server]"
                ) from None
        return self._client
