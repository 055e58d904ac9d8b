"""The checks of message targets: all are probed concurrently, and no message is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from noonbell.actions.targets.configured import DeclaredTarget
from noonbell.actions.targets.target import ProbedTarget
from noonbell.cli.doctor import Finding
from noonbell.errors import describe_error

_PATIENCE_SECONDS: Final = 10.0


def examine_targets(targets: Sequence[DeclaredTarget]) -> Iterator[Finding]:
    """Return a finding for each target, in their order."""
    yield from asyncio.run(_all(targets))


async def _all(targets: Sequence[DeclaredTarget]) -> list[Finding]:
    return list(await asyncio.gather(*map(_one, targets)))


async def _one(declared: DeclaredTarget) -> Finding:
    what = f"target {declared.name}"
    if declared.missing is not None:
        return Finding(
            what, "wrong", f"without {declared.missing.partition(':')[0]}", declared.missing.partition(": ")[2]
        )
    target = declared.build()
    if not isinstance(target, ProbedTarget):
        return Finding(what, "ok", f"{declared.kind}; not probed, because that would send a request")
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            answer = await target.probe()
    except TimeoutError:
        answer = f"{target!r} did not answer within {_PATIENCE_SECONDS:g} s"
        return Finding(what, "wrong", answer, "See that it is running, and that the address is right")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        do = "Messages wait until it is well: see that it is running, and that the address is right"
        return Finding(what, "wrong", str(getattr(error, "reason", "")) or describe_error(error), do)
    finally:
        await target.close()
    return Finding(what, "ok", f"{declared.kind}, {answer}")
