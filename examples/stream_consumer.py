"""A consumer of a Redis stream that Noonbell fills: one of a group, who may die at any time.

    python examples/stream_consumer.py redis://cache:6379/0 events --group workers --name one

Several of them share the work: each entry goes to one. What a consumer does with it comes first, the acknowledgement
after it; who dies in between leaves the entry to be claimed by another, once it has been idle for a while. So an entry
may come twice, and Noonbell itself may put a message in again after a fail-over. Both times `id` is the same: what must
happen once is remembered under it.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import redis


class Consumer:
    def __init__(self, client: Any, stream: str, group: str, name: str) -> None:
        self.client, self.stream, self.group, self.name = client, stream, group, name
        self._place = "0-0"  # how far the look for stale entries has come

    def make_group(self) -> None:
        """Noonbell makes it as well, where its target has a `group`; whoever comes first."""
        try:
            self.client.xgroup_create(self.stream, self.group, id="0", mkstream=True)
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def next(self, stale_ms: int, block_ms: int) -> list[tuple[str, dict[str, str]]]:
        """What another one has left behind; otherwise what is new."""
        found = self.client.xautoclaim(self.stream, self.group, self.name, stale_ms, self._place, count=100)
        self._place, stale = found[0], found[1]
        if stale:
            return list(stale)
        new = self.client.xreadgroup(self.group, self.name, {self.stream: ">"}, count=100, block=block_ms)
        return [entry for _, entries in new or () for entry in entries]

    def work(self, entry: str, fields: dict[str, str]) -> None:
        """Do it, unless it was done, and say so to the group."""
        done = f"done:{fields['id']}"
        if self.client.exists(done):
            print(f"{self.name}: {fields['id']} was done before")
        else:
            data = json.loads(fields["data"])
            print(f"{self.name}: {fields['subject']} says {data['text']}")
            self.client.set(done, self.name, ex=86_400)
        self.client.xack(self.stream, self.group, entry)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("url")
    ask.add_argument("stream")
    ask.add_argument("--group", default="workers")
    ask.add_argument("--name", default="one")
    ask.add_argument("--stale-ms", type=int, default=60_000, help="how long an entry may be with one who is silent")
    ask.add_argument("--block-ms", type=int, default=5_000)
    ask.add_argument("--until-empty", action="store_true", help="end when there is nothing to do")
    given = ask.parse_args()
    with redis.Redis.from_url(given.url, decode_responses=True) as client:
        consumer = Consumer(client, given.stream, given.group, given.name)
        consumer.make_group()
        while True:
            entries = consumer.next(given.stale_ms, given.block_ms)
            for entry, fields in entries:
                consumer.work(entry, fields)
            if not entries and given.until_empty:
                return


if __name__ == "__main__":
    main()
