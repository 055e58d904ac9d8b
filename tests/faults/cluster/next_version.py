"""The version after this one: the package as it stands, with another number and one more step for PostgreSQL's tables.

The step does what steps do, and all of it at once: a table, an index, columns that may be NULL or have a constant
default, in every table that an engine writes to. Some columns bear names that statements of today use for other things.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import noonbell
from noonbell.store.postgres.schema import migrations

VERSION: Final = f"{noonbell.__version__}+next"
STEP: Final = """
    CREATE TABLE landmarks (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, sid int8 NOT NULL, name text NOT NULL);
    ALTER TABLE schedule_state ADD COLUMN place text;
    ALTER TABLE schedule_state ADD COLUMN n int8 NOT NULL DEFAULT 1;
    CREATE INDEX idx_schedules_place ON schedule_state (place, sid) WHERE place IS NOT NULL;
    ALTER TABLE schedule_definitions ADD COLUMN place text;
    ALTER TABLE schedule_definitions ADD COLUMN n int8 NOT NULL DEFAULT 1;
    ALTER TABLE runs_live ADD COLUMN place text;
    ALTER TABLE runs_live ADD COLUMN n int8 NOT NULL DEFAULT 1;
    ALTER TABLE runs ADD COLUMN place text;
    ALTER TABLE runs ADD COLUMN n int8 NOT NULL DEFAULT 1;
    CREATE INDEX idx_runs_place ON runs (place, run_for, sid) WHERE place IS NOT NULL;
    ALTER TABLE spans ADD COLUMN i int8;
    ALTER TABLE attempts ADD COLUMN i int8;
    ALTER TABLE outbox ADD COLUMN i int8;
    ALTER TABLE outbox_streams ADD COLUMN i int8;
    ALTER TABLE audit_events ADD COLUMN i int8;
    ALTER TABLE engines ADD COLUMN place text NOT NULL DEFAULT '';
    ALTER TABLE instances ADD COLUMN place text NOT NULL DEFAULT '';
"""


def steps() -> tuple[tuple[str, str], ...]:
    """Name and SQL of every step that it knows."""
    known = migrations()
    return (*known, (f"{len(known) + 1:04}_landmarks.sql", STEP))


def write_to(folder: Path) -> Path:
    """Write the package there; a process that has the folder on its PYTHONPATH is of the next version."""
    package = folder / "noonbell"
    here = Path(noonbell.__file__).parent
    shutil.copytree(here, package, ignore=shutil.ignore_patterns("__pycache__"))
    name, sql = steps()[-1]
    (package / "store" / "postgres" / "migrations" / name).write_text(sql, encoding="utf-8")
    first = package / "__init__.py"
    told, count = re.subn(r'(?m)^__version__ = ".*"$', f'__version__ = "{VERSION}"', first.read_text(encoding="utf-8"))
    assert count == 1, "the version is one line"
    first.write_text(told, encoding="utf-8")
    installed = folder / f"noonbell-{VERSION}.dist-info"  # what an engine tells of itself is read from there
    installed.mkdir()
    (installed / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: noonbell\nVersion: {VERSION}\n", encoding="utf-8"
    )
    return folder
