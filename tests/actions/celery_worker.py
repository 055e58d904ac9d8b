"""A Celery application of the tests: its worker writes down what its tasks were given, one line of JSON for each.

A program: `python -m celery -A tests.actions.celery_worker worker …`, with its broker and its file in the environment.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from celery import Celery

app = Celery("received", broker=os.environ["RECEIVED_BROKER"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    worker_enable_remote_control=False,  # nothing but the tasks; a quick start
    task_default_queue="usual",
)


def note(task: Any, *args: Any, **kwargs: Any) -> None:
    line = {"task": task.name, "id": task.request.id, "args": args, "kwargs": kwargs}
    with Path(os.environ["RECEIVED_FILE"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


app.task(note, name="letters.note", bind=True)
app.task(note, name="letters.keep", bind=True)
