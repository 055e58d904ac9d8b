"""A long look at the API with schemathesis: all phases, inputs that differ each time, a service of its own.

    python -m tests.faults.api_schema --seconds 180

Ends with one line of JSON; the exit code is 1 where something was found, with the report before it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path

from tests.api.conftest import serving, settings_for
from tests.api.schema_run import Looked, look


async def run(seconds: int, examples: int, seed: int | None, store: str | None) -> Looked:
    options = ["--max-time", str(seconds), "--max-examples", str(examples), "--continue-on-failure"]
    if seed is not None:
        options += ["--seed", str(seed)]
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_for(Path(folder), **({} if store is None else {"store": store}))
        async with serving(settings) as client:
            return await look(client, Path(folder), *options, named=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=180, help="when to come to an end")
    parser.add_argument("--examples", type=int, default=100, help="of each operation, at most")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--store", default=None, help="the address of an empty database; SQLite unless told otherwise")
    given = parser.parse_args()
    looked = asyncio.run(run(given.seconds, given.examples, given.seed, given.store))
    if looked.code:
        print(looked.report)
    counted = {
        name: int(found[1]) if (found := re.search(pattern, looked.report)) else None
        for name, pattern in (("operations", r"Tested: (\d+)"), ("cases", r"(\d+) generated"), ("seed", r"Seed: (\d+)"))
    }
    print(json.dumps({"run": "api_schema", "clean": looked.code == 0, **counted}))
    return 1 if looked.code else 0


if __name__ == "__main__":
    sys.exit(main())
