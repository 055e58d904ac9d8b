"""`Idempotency-Key`: a POST that is sent twice is carried out once.

    POST /api/v1/schedules
    Idempotency-Key: 0b1f…

The first request with a key is carried out, and its answer is kept for 24 hours; the same request again gets the same
answer, with `Idempotency-Replayed: true`. Another body under the same key is refused (422), and so is a second request
while the first is under way (409). A key belongs to the team, the caller and the address that it is used with. Only
answers of success are kept: after a refusal the same key may be tried again.

The id of a new object is chosen and stored before the object is created, and a manual run is for the instant at which
the request first began. So if the process dies before the answer is stored, or the outcome of a commit is unknown, the
repeated request finds the existing object instead of creating a second one. It is accepted a minute later: by then the
first attempt has ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from fastapi import Header, Request, Response

from noonbell.access import Caller
from noonbell.api.models.base import ResponseBody
from noonbell.api.problems import ProblemError
from noonbell.bootstrap import Service
from noonbell.core.instants import moment
from noonbell.core.records import Document, DocumentWrite
from noonbell.errors import DocumentConflictError, NoonbellError, StoreError, TimelineError
from noonbell.ports import DocumentFilter, Ledger
from noonbell.schedules.changes import new_ids
from noonbell.store.documents import due_documents, removals

KIND: Final = "idempotency"
KEPT_US: Final = 24 * 3_600 * 1_000_000
# A request that is under way for longer than this has died with its process.
ABANDONED_US: Final = 60 * 1_000_000
_SWEPT: Final = 20
_encode = msgspec.json.Encoder().encode

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$",
        description="A unique text chosen by the client: a repeated request is answered, not carried out again.",
    ),
]  # fmt: skip


class Answer(msgspec.Struct, frozen=True):
    """A response in the form in which it is stored."""

    status: int
    body: str
    headers: dict[str, str] = {}


class _Kept(msgspec.Struct, frozen=True):
    request: str  # the hash of the request
    new_id: str  # the id of the new object
    begun_at: int
    answer: Answer | None = None
    first_at: int = 0  # when the first attempt was begun; 0 in what an earlier version wrote


_decode = msgspec.json.Decoder(_Kept).decode


class Attempt(msgspec.Struct, frozen=True):
    """One attempt to carry out a request. `repeated`: an earlier attempt began, and its outcome is unknown.

    `begun_at` is the time of the first attempt, the same for all attempts.
    """

    new_id: str
    begun_at: datetime
    repeated: bool = False

    def may_have_made(self, created_at: datetime) -> bool:
        """Return whether an earlier attempt may have created it; with an id chosen by the client it may be older."""
        return self.repeated and created_at >= self.begun_at


Do = Callable[[Attempt], Awaitable[Answer]]


def as_answer(status: int, model: ResponseBody, **headers: str) -> Answer:
    """Return a model as an answer."""
    return Answer(status, model.model_dump_json(), {name.replace("_", "-"): value for name, value in headers.items()})


async def once(request: Request, service: Service, caller: Caller, key: str | None, do: Do) -> Response:
    """Carry out the request, unless it was carried out under this key before."""
    now = service.clock.now()
    if key is None:
        return _response(await do(Attempt(next(new_ids(now)), moment(now))))
    store = service.store
    document_id = _digest(caller.team, caller.actor, request.method, request.url.path, key)
    asked = _digest(request.headers.get("content-type", ""), request.url.query, (await request.body()).hex())
    kept, version = await _begin(store, document_id, caller.team, asked, now)
    if kept.answer is not None:
        return _response(kept.answer, replayed=True)
    try:
        answer = await do(Attempt(kept.new_id, moment(kept.first_at), repeated=version > 1))
    except (StoreError, TimelineError):
        raise  # it may be committed nevertheless: a repeated request finds out
    except (NoonbellError, ProblemError):  # refused; after any other error the outcome is unknown
        await store.documents.write(removed=removals(KIND, [document_id]))
        raise
    written = _encode(msgspec.structs.replace(kept, answer=answer)).decode()
    await store.documents.write(
        [DocumentWrite(KIND, document_id, caller.team, written, None, now + KEPT_US)], service.clock.now()
    )
    await _sweep(store, now)
    return _response(answer)


async def _begin(store: Ledger, document_id: str, team: str, asked: str, now: int) -> tuple[_Kept, int]:
    """Record that the request is under way, or return its record; the version is the number of attempts."""
    found = await store.documents.find(DocumentFilter(KIND, [document_id]))
    known: _Kept | None = None
    expected, new_id, first_at = 0, next(new_ids(now)), now
    if found:
        known = _known(found[0], asked, now)
        if known is not None and known.answer is not None:
            return known, found[0].version
        if known is not None:
            new_id, first_at = known.new_id, known.first_at or known.begun_at
        expected = found[0].version
    kept = _Kept(asked, new_id, now, first_at=first_at)
    write = DocumentWrite(KIND, document_id, team, _encode(kept).decode(), expected, now + KEPT_US)
    try:
        (document,) = await store.documents.write([write], now)
    except DocumentConflictError:
        raise _under_way() from None
    return kept, 1 if known is None else document.version


def _known(document: Document, asked: str, now: int) -> _Kept | None:
    """Return the record of an earlier request; None if it has expired."""
    kept = _decode(document.body)
    if kept.begun_at + KEPT_US <= now:
        return None
    if kept.request != asked:
        detail = "Idempotency-Key was used for another request; take a new key for a new one"
        raise ProblemError(422, detail, kind="idempotency-key-reused", field="Idempotency-Key")
    if kept.answer is None and kept.begun_at + ABANDONED_US > now:
        raise _under_way()
    return kept


def _under_way() -> ProblemError:
    detail = "A request with this Idempotency-Key is under way, or has just ended without an answer; ask again soon"
    return ProblemError(409, detail, kind="idempotency-under-way", headers={"Retry-After": "1"})


async def _sweep(store: Ledger, now: int) -> None:
    """Delete some expired records; every new request deletes a few."""
    due, _ = await due_documents(store, KIND, now, _SWEPT)
    if due:
        await store.documents.write(removed=removals(KIND, [document.id for document in due]))


def _response(answer: Answer, *, replayed: bool = False) -> Response:
    headers = {**answer.headers, "Idempotency-Replayed": "true"} if replayed else answer.headers
    return Response(answer.body, answer.status, headers, "application/json")


def _digest(*parts: Any) -> str:
    return hashlib.sha256(_encode(parts)).hexdigest()
