"""Reads and removals of documents that several packages share, over the verbs of `LedgerDocuments`."""

from __future__ import annotations

from collections.abc import Iterable

from noonbell.core.records import Document, DocumentRemoval
from noonbell.ports import DocumentFilter, Ledger


def removals(kind: str, ids: Iterable[str], expected: int | None = None) -> list[DocumentRemoval]:
    """Return the removals of these documents of a kind."""
    return [DocumentRemoval(kind, one, expected) for one in dict.fromkeys(ids)]


async def due_documents(store: Ledger, kind: str, now: int, limit: int) -> tuple[list[Document], int | None]:
    """Return those whose wake_at has come, the earliest first, and when the next one that was left out comes."""
    waking = await store.documents.find(DocumentFilter(kind, waking=True), limit=limit + 1)
    due = [document for document in waking[:limit] if document.wake_at is not None and document.wake_at <= now]
    return due, waking[len(due)].wake_at if len(waking) > len(due) else None
