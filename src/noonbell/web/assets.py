"""The files that pages load: styles, scripts and the libraries that come with the package.

The address of a file contains a part of its hash, so a browser may cache it for ever: new content has a new address.
Files are read once and kept in memory, with their compressed form. Only files of the folder are served.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response

from noonbell.api.problems import ProblemError

router = APIRouter(include_in_schema=False)

_KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOLDERS: Final = ("", "vendor/")
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    """A file in the form in which it is sent."""

    content: bytes
    packed: bytes
    kind: str
    digest: str


@cache
def assets() -> dict[str, Asset]:
    """Return all files that are served, by name."""
    root = resources.files("noonbell.web").joinpath("static")
    found: dict[str, Asset] = {}
    for folder in _FOLDERS:
        for file in root.joinpath(folder).iterdir() if folder else root.iterdir():
            kind = _KINDS.get("." + file.name.rpartition(".")[2])
            if kind is not None and file.is_file():
                content = file.read_bytes()
                digest = hashlib.sha256(content).hexdigest()[:12]
                # the same bytes from every process: no time of packing inside
                found[folder + file.name] = Asset(content, gzip.compress(content, 9, mtime=0), kind, digest)
    return found


def asset_url(name: str) -> str:
    """Return the address of a file. A KeyError means that a template names a file that does not exist."""
    return f"/static/{assets()[name].digest}/{name}"


@router.get("/static/{digest}/{name:path}")
async def static(request: Request, digest: str, name: str) -> Response:
    found = assets().get(name)
    if found is None or digest != found.digest:
        raise ProblemError(404, "File not found")
    headers = {"Cache-Control": _FOR_EVER, "Vary": "Accept-Encoding"}
    packed = "gzip" in request.headers.get("accept-encoding", "")
    if packed:
        headers["Content-Encoding"] = "gzip"
    return Response(found.packed if packed else found.content, media_type=found.kind, headers=headers)
