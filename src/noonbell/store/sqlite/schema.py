"""The tables, and the steps that bring an older file up to date.

Instants are whole microseconds since 1970. Most columns declare no type on purpose: SQLite then keeps a value as it was
written, so damage shows as what it is instead of being coerced into something plausible. `lane_no` and `enabled` are
integers by declaration, because only then does the index of wake-ups cover what is asked of it.

A schedule is two rows. `schedule_definitions` holds what people write: wide, and written by create, edit, declare and
delete alone. `schedule_state` holds what a fire changes: integers, about a tenth of the width. `lane_no` is the number
of the lane, which is the private one of its owner for a declared task. The view `schedules` is for people: durable
schedules that were not deleted, with instants as text.

The run in flight is in the slot of the state row (`slot_…`), all others are in `runs_live`: see `slots`. The view
`live_runs` has both.

`runs` is keyed by time first: fires are appended in order, a day is dropped from the front, and the run of a known
occurrence is one look-up. Its words are numbers, as those of `attempts` are: see `numbers`.
"""

from __future__ import annotations

from typing import Final

from noonbell.core.records import Attempt
from noonbell.store.sqlite.numbers import ATTEMPT_WORDS, RUN_WORDS, owner_sql, word_sql
from noonbell.store.words import CAUSES


def _as_text(column: str) -> str:
    """SQL for an instant as ISO 8601 in UTC, always with six decimals, so that texts sort as instants do."""
    return (
        f"iif(typeof({column}) = 'integer', strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch') "
        f"|| printf('.%06dZ', {column} % 1000000), {column}) AS {column}"
    )


_VIEW: Final = f"""
    CREATE VIEW schedules AS
    SELECT schedule_id, name, enabled, type, spec, {_as_text("next_run_at")}, {_as_text("last_run_at")}, timezone,
        quiet_hours_policy_id, catch_up_policy, payload, {_as_text("created_at")}, {_as_text("updated_at")}
    FROM schedule_definitions JOIN schedule_state USING (sid) WHERE lane IS NOT NULL AND removed_at IS NULL;
"""

_RUN: Final = (
    "run_for", "sid", "kind", "outcome", "attempts", "started_at", "ended_at", "owner", "epoch", "prev_for",
    "prev_manual", "waited_us",
)  # fmt: skip
_RECORDS: Final = f"""
    CREATE VIEW run_records AS SELECT {", ".join(f"{RUN_WORDS.get(name, f'r.{name}')} AS {name}" for name in _RUN)}
    FROM runs r;
    CREATE VIEW attempt_records AS
    SELECT {", ".join(f"{ATTEMPT_WORDS.get(name, f'a.{name}')} AS {name}" for name in Attempt.__struct_fields__)}
    FROM attempts a;
"""

# SQLite makes a query of this view two look-ups by key only if both parts yield each column with the same affinity:
# that is what the plus signs and the CAST are for. Otherwise it would go through both tables first.
_LIVE_RUNS: Final = f"""
    CREATE VIEW live_runs AS
    SELECT sid, kind, run_for, +fence AS fence, +owner AS owner, +state AS state, +attempt AS attempt,
        +wake_at AS wake_at, started_at, attempt_at, +crashes AS crashes, epoch, +cause AS cause
    FROM runs_live
    UNION ALL
    SELECT sid, CAST('scheduled' AS TEXT), slot_for, 1, {owner_sql("slot_owner")}, 'running', 1,
        NULL, slot_at, slot_at, 0, slot_epoch, {word_sql(CAUSES, "slot_cause")}
    FROM schedule_state WHERE slot_for IS NOT NULL;
"""

MIGRATIONS: Final = (
    """
    CREATE TABLE schedule_definitions (
        sid INTEGER PRIMARY KEY,
        schedule_id NOT NULL,
        name,
        type NOT NULL DEFAULT 'cron',
        spec,
        timezone DEFAULT 'UTC',
        quiet_hours_policy_id,
        catch_up_policy NOT NULL DEFAULT 'run_once',
        payload,
        definition,
        managed_by NOT NULL,
        team NOT NULL DEFAULT 'default',
        lane,
        retry_delay_us,
        created_at,
        updated_at,
        removed_at
    );
    CREATE UNIQUE INDEX idx_schedules_id ON schedule_definitions (schedule_id);
    CREATE UNIQUE INDEX idx_schedules_name ON schedule_definitions (managed_by, name, team) WHERE removed_at IS NULL;
    CREATE INDEX idx_schedules_quiet_hours ON schedule_definitions (quiet_hours_policy_id)
        WHERE quiet_hours_policy_id IS NOT NULL;
    -- lists of a team, in the order of sids
    CREATE INDEX idx_schedules_team ON schedule_definitions (team) WHERE removed_at IS NULL;
    -- and those of the rarer types; most schedules are cron, and cost nothing here
    CREATE INDEX idx_schedules_type ON schedule_definitions (team, type) WHERE type <> 'cron' AND removed_at IS NULL;

    CREATE TABLE schedule_state (
        sid INTEGER PRIMARY KEY,
        lane_no INTEGER,
        enabled INTEGER NOT NULL DEFAULT 1,
        next_run_at,
        cursor_at,
        epoch NOT NULL DEFAULT 1,
        anchor_at,
        backlog_left,
        backlog_until,
        last_run_for,
        last_run_at,
        last_attempt_at,
        last_success_at,
        last_failure_at,
        last_ended_for,
        last_ended_manual NOT NULL DEFAULT 0,
        ended_runs NOT NULL DEFAULT 0,
        succeeded_runs NOT NULL DEFAULT 0,
        removed INTEGER NOT NULL DEFAULT 0,
        -- the slot: all NULL, or the first attempt of a scheduled run that executes. No index may name these columns.
        slot_for,
        slot_owner,
        slot_epoch,
        slot_at,
        slot_cause
    );
    -- what is due in one lane, however much is due in the others that share the file
    CREATE INDEX idx_schedules_next_run ON schedule_state (lane_no, next_run_at) WHERE enabled = 1;
    -- lists of what is paused or done, in the order of sids, without those that were deleted
    CREATE INDEX idx_schedules_disabled ON schedule_state (sid) WHERE enabled = 0 AND removed = 0;

    -- `lane:` and the name of a lane, or the owner of declared tasks. A number is never changed nor given again.
    CREATE TABLE lane_numbers (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

    CREATE TABLE schedule_tags (
        tag TEXT NOT NULL,
        team TEXT NOT NULL,
        sid INTEGER NOT NULL,
        PRIMARY KEY (tag, team, sid)
    ) WITHOUT ROWID;
    """
    + _VIEW
    + """
    CREATE TABLE runs_live (
        sid INTEGER NOT NULL,
        kind TEXT NOT NULL,
        run_for NOT NULL,
        fence NOT NULL,
        owner,
        state NOT NULL,
        attempt NOT NULL,
        wake_at,
        started_at,
        attempt_at,
        crashes NOT NULL DEFAULT 0,
        epoch NOT NULL,
        cause NOT NULL,
        PRIMARY KEY (sid, kind, run_for)
    ) WITHOUT ROWID;
    CREATE INDEX idx_runs_live_wake ON runs_live (wake_at) WHERE state <> 'running';
    """
    + _LIVE_RUNS
    + """
    -- The history of a schedule is a chain: see `ending`. `waited_us` is how long the first attempt waited for an HTTP
    -- slot or a thread, from its claim (started_at) to its start.
    CREATE TABLE runs (
        run_for INTEGER NOT NULL,
        sid INTEGER NOT NULL,
        kind NOT NULL,
        outcome NOT NULL,
        attempts NOT NULL,
        started_at NOT NULL,
        ended_at NOT NULL,
        owner NOT NULL,
        epoch NOT NULL,
        prev_for,
        prev_manual NOT NULL DEFAULT 0,
        waited_us NOT NULL DEFAULT 0,
        PRIMARY KEY (run_for, sid, kind)
    ) WITHOUT ROWID;
    CREATE INDEX idx_runs_unsuccessful ON runs (run_for) WHERE outcome <> 0;

    -- The instances that have executed runs.
    CREATE TABLE owners (no INTEGER PRIMARY KEY, instance TEXT NOT NULL UNIQUE);

    CREATE TABLE spans (
        sid INTEGER NOT NULL,
        from_at INTEGER NOT NULL,
        to_at NOT NULL,
        n NOT NULL,
        verdict NOT NULL,
        reason NOT NULL,
        epoch NOT NULL,
        PRIMARY KEY (sid, from_at)
    ) WITHOUT ROWID;

    CREATE TABLE attempts (
        sid INTEGER NOT NULL,
        run_for INTEGER NOT NULL,
        kind NOT NULL,
        attempt INTEGER NOT NULL,
        outcome NOT NULL,
        cause NOT NULL,
        started_at,
        ended_at NOT NULL,
        owner,
        error,
        detail,
        PRIMARY KEY (sid, run_for, kind, attempt)
    ) WITHOUT ROWID;
    """
    + _RECORDS
    + """

    CREATE TABLE epochs (
        sid INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        from_at NOT NULL,
        to_at,
        spec NOT NULL,
        timezone NOT NULL,
        zone_hash NOT NULL,
        policies NOT NULL,
        enabled NOT NULL,
        PRIMARY KEY (sid, epoch)
    ) WITHOUT ROWID;

    CREATE TABLE pruned_days (
        sid INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        day INTEGER NOT NULL,
        first_at NOT NULL,
        to_at NOT NULL,
        fired NOT NULL,
        passed NOT NULL,
        last_for,
        last_started_at,
        PRIMARY KEY (sid, epoch, day)
    ) WITHOUT ROWID;

    CREATE TABLE lifecycle (
        id INTEGER PRIMARY KEY,
        managed_by NOT NULL,
        at NOT NULL,
        instance NOT NULL,
        event NOT NULL,
        detail NOT NULL
    );

    CREATE TABLE quiet_hours_policies (
        policy_id TEXT PRIMARY KEY,
        name NOT NULL,
        document NOT NULL,
        created_at NOT NULL,
        updated_at NOT NULL,
        team NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE zone_rules (
        timezone TEXT PRIMARY KEY,
        zone_hash NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE audit_events (
        id INTEGER PRIMARY KEY,
        at NOT NULL,
        event NOT NULL,
        subject NOT NULL,
        actor NOT NULL,
        detail NOT NULL,
        team
    );
    CREATE INDEX idx_audit_events_subject ON audit_events (subject, id);
    CREATE INDEX idx_audit_events_at ON audit_events (at);
    -- the events of one team among those of many; where there is one team alone, it costs nothing
    CREATE INDEX idx_audit_events_team ON audit_events (team, id) WHERE team <> 'default';
    CREATE TRIGGER audit_events_are_final BEFORE UPDATE ON audit_events
    BEGIN
        SELECT raise(ABORT, 'audit events are never changed');
    END;

    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        sid INTEGER NOT NULL,
        lane NOT NULL,
        message_id NOT NULL,
        target NOT NULL,
        body NOT NULL,
        created_at NOT NULL,
        team NOT NULL
    );
    CREATE INDEX idx_outbox_stream ON outbox (sid, id);

    -- A row for each schedule with messages in the outbox. An owner is delivering; without one it waits until wake_at.
    CREATE TABLE outbox_streams (
        sid INTEGER PRIMARY KEY,
        lane NOT NULL,
        wake_at NOT NULL,
        owner,
        attempt NOT NULL DEFAULT 0,
        error
    );
    CREATE INDEX idx_outbox_streams_wake ON outbox_streams (lane, wake_at) WHERE owner IS NULL;

    CREATE TABLE dead_letters (
        id INTEGER PRIMARY KEY,
        sid INTEGER NOT NULL,
        lane NOT NULL,
        message_id NOT NULL,
        target NOT NULL,
        body NOT NULL,
        created_at NOT NULL,
        team NOT NULL,
        died_at NOT NULL,
        attempts NOT NULL,
        error NOT NULL
    );
    CREATE INDEX idx_dead_letters_sid ON dead_letters (sid, id);

    CREATE TABLE documents (
        kind TEXT NOT NULL,
        id TEXT NOT NULL,
        team NOT NULL,
        version NOT NULL,
        body NOT NULL,
        created_at NOT NULL,
        updated_at NOT NULL,
        wake_at,
        PRIMARY KEY (kind, id)
    ) WITHOUT ROWID;
    CREATE INDEX idx_documents_team ON documents (kind, team, id);
    CREATE INDEX idx_documents_wake ON documents (kind, wake_at) WHERE wake_at IS NOT NULL;

    -- What engines record of themselves. Whether one is alive is not recorded here: that is the lock on its name.
    CREATE TABLE engines (
        instance TEXT PRIMARY KEY,
        lane NOT NULL,
        host NOT NULL,
        pid NOT NULL,
        version NOT NULL,
        zone_data NOT NULL,
        joined_at NOT NULL,
        up_since NOT NULL,
        state NOT NULL,
        load NOT NULL,
        seen_at NOT NULL,
        last_poll_at
    ) WITHOUT ROWID;

    -- When each lane was last polled, and the latest stretches without a poll, as a JSON list.
    CREATE TABLE lanes (lane TEXT PRIMARY KEY, last_poll_at NOT NULL, grace_us NOT NULL, gaps NOT NULL) WITHOUT ROWID;
    """,
)

# Files of development versions had one table `schedules`; now that is a view.
IS_OF_DEVELOPMENT: Final = """
    SELECT 1 FROM sqlite_schema WHERE type = 'table' AND (
        name = 'schedules' OR (name = 'schedule_state' AND sql NOT LIKE '%slot_for%')
    )
"""

# Filled from one JSON text for each batch, then joined: no statement is run row by row.
SETTLE_TABLE: Final = """
    CREATE TEMP TABLE IF NOT EXISTS settling (
        i INTEGER PRIMARY KEY, sid, run_for, fence, ended_at, following, epoch, kind, outcome, attempt, owner, owner_no,
        wake_at, attempt_at, waited_us
    )
"""
