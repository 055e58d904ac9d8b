"""The tables, and the steps that bring an older file up to date.

Instants are whole microseconds since 1970. Most columns declare no type on purpose: SQLite then keeps a value as it was
written, so damage shows as what it is instead of being coerced into something plausible.

`runs` is keyed by time first: fires are appended in order, a day is dropped from the front, and the run of a known
occurrence is one look-up.
"""

from __future__ import annotations

from typing import Final

MIGRATIONS: Final = (
    """
    CREATE TABLE schedules (
        sid INTEGER PRIMARY KEY,
        schedule_id NOT NULL,
        name,
        enabled NOT NULL DEFAULT 1,
        type NOT NULL DEFAULT 'cron',
        spec,
        next_run_at,
        last_run_at,
        timezone DEFAULT 'UTC',
        quiet_hours_policy_id,
        catch_up_policy NOT NULL DEFAULT 'run_once',
        payload,
        created_at,
        updated_at,
        managed_by NOT NULL,
        team NOT NULL DEFAULT 'default',
        epoch NOT NULL DEFAULT 1,
        cursor_at,
        retry_delay_us,
        last_attempt_at,
        last_success_at,
        last_failure_at,
        removed_at
    );
    CREATE UNIQUE INDEX idx_schedules_id ON schedules (schedule_id);
    CREATE UNIQUE INDEX idx_schedules_name ON schedules (managed_by, name, team) WHERE removed_at IS NULL;
    CREATE INDEX idx_schedules_next_run ON schedules (next_run_at) WHERE enabled = 1;

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

    CREATE TABLE runs (
        run_for INTEGER NOT NULL,
        sid INTEGER NOT NULL,
        kind TEXT NOT NULL,
        outcome NOT NULL,
        attempts NOT NULL,
        started_at NOT NULL,
        ended_at NOT NULL,
        owner NOT NULL,
        epoch NOT NULL,
        PRIMARY KEY (run_for, sid, kind)
    ) WITHOUT ROWID;

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
        kind TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        outcome NOT NULL,
        cause NOT NULL,
        started_at,
        ended_at NOT NULL,
        owner,
        error,
        PRIMARY KEY (sid, run_for, kind, attempt)
    ) WITHOUT ROWID;

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

    CREATE TABLE lifecycle (
        id INTEGER PRIMARY KEY,
        managed_by NOT NULL,
        at NOT NULL,
        instance NOT NULL,
        event NOT NULL,
        detail NOT NULL
    );
    """,
    """
    ALTER TABLE schedules ADD COLUMN definition;
    ALTER TABLE schedules ADD COLUMN lane;
    ALTER TABLE schedules ADD COLUMN anchor_at;
    ALTER TABLE schedules ADD COLUMN backlog_left;
    ALTER TABLE schedules ADD COLUMN backlog_until;
    ALTER TABLE schedules ADD COLUMN last_run_for;
    -- lists of a team, in the order of sids
    CREATE INDEX idx_schedules_team ON schedules (team) WHERE removed_at IS NULL;
    CREATE INDEX idx_schedules_disabled ON schedules (team) WHERE enabled = 0 AND removed_at IS NULL;
    CREATE TABLE schedule_tags (
        tag TEXT NOT NULL,
        team TEXT NOT NULL,
        sid INTEGER NOT NULL,
        PRIMARY KEY (tag, team, sid)
    ) WITHOUT ROWID;
    CREATE INDEX idx_schedules_quiet_hours ON schedules (quiet_hours_policy_id) WHERE quiet_hours_policy_id IS NOT NULL;

    CREATE TABLE quiet_hours_policies (
        policy_id TEXT PRIMARY KEY,
        name NOT NULL,
        document NOT NULL,
        created_at NOT NULL,
        updated_at NOT NULL,
        team NOT NULL
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
    -- the events of one team among those of many; where there is one team alone, it costs nothing
    CREATE INDEX idx_audit_events_team ON audit_events (team, id) WHERE team <> 'default';
    CREATE TRIGGER audit_events_are_final BEFORE UPDATE ON audit_events
    BEGIN
        SELECT raise(ABORT, 'audit events are never changed');
    END;
    """,
    """
    ALTER TABLE attempts ADD COLUMN detail;

    -- The history of a schedule is a chain: see `ending`.
    ALTER TABLE runs ADD COLUMN prev_for;
    ALTER TABLE runs ADD COLUMN prev_manual NOT NULL DEFAULT 0;
    ALTER TABLE schedules ADD COLUMN last_ended_for;
    ALTER TABLE schedules ADD COLUMN last_ended_manual NOT NULL DEFAULT 0;
    ALTER TABLE schedules ADD COLUMN ended_runs NOT NULL DEFAULT 0;
    ALTER TABLE schedules ADD COLUMN succeeded_runs NOT NULL DEFAULT 0;
    UPDATE runs SET prev_for = e.prev_for, prev_manual = coalesce(e.prev_manual, 0) FROM (
        SELECT run_for, sid, kind, lag(run_for) OVER w AS prev_for, lag(kind = 'manual') OVER w AS prev_manual
        FROM runs WINDOW w AS (PARTITION BY sid ORDER BY ended_at, run_for, kind)
    ) e WHERE e.run_for = runs.run_for AND e.sid = runs.sid AND e.kind = runs.kind;
    UPDATE schedules SET last_ended_for = e.run_for, last_ended_manual = e.kind = 'manual', ended_runs = e.n,
        succeeded_runs = e.succeeded
    FROM (
        SELECT sid, run_for, kind, count(*) OVER w AS n, sum(outcome = 'succeeded') OVER w AS succeeded,
            row_number() OVER (PARTITION BY sid ORDER BY ended_at DESC, run_for DESC, kind DESC) AS place
        FROM runs WINDOW w AS (PARTITION BY sid)
    ) e WHERE e.sid = schedules.sid AND e.place = 1;
    CREATE INDEX idx_runs_unsuccessful ON runs (run_for) WHERE outcome <> 'succeeded';

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
    CREATE INDEX idx_audit_events_at ON audit_events (at);

    -- what is due in one lane, however much is due in the others that share the file
    CREATE INDEX idx_schedules_lane ON schedules (lane, next_run_at) WHERE enabled = 1 AND lane IS NOT NULL;

    CREATE TABLE zone_rules (
        timezone TEXT PRIMARY KEY,
        zone_hash NOT NULL
    ) WITHOUT ROWID;
    INSERT OR IGNORE INTO zone_rules
        SELECT e.timezone, min(e.zone_hash) FROM epochs e JOIN schedules s ON s.sid = e.sid
        WHERE e.to_at IS NULL AND s.lane IS NOT NULL GROUP BY e.timezone;
    """,
    """
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
    """,
    """
    -- lists of the rarer kinds, in the order of sids; most schedules are cron, and cost nothing here
    CREATE INDEX idx_schedules_type ON schedules (team, type) WHERE type <> 'cron' AND removed_at IS NULL;
    """,
    """
    -- What engines tell of themselves. Whether one is alive is not told here: that is the lock on its name.
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
        seen_at NOT NULL
    ) WITHOUT ROWID;
    """,
    """
    -- When each lane was last polled, and the latest stretches without a poll, as a JSON list.
    ALTER TABLE engines ADD COLUMN last_poll_at;
    CREATE TABLE lanes (lane TEXT PRIMARY KEY, last_poll_at NOT NULL, grace_us NOT NULL, gaps NOT NULL) WITHOUT ROWID;
    INSERT INTO lanes SELECT lane, max(at), 60000000, '[]' FROM (
        SELECT substr(managed_by, 6) AS lane, at FROM lifecycle WHERE managed_by LIKE 'lane:%'
        UNION ALL SELECT lane, seen_at FROM engines
    ) GROUP BY lane;
    """,
    """
    -- how long the first attempt waited for an HTTP slot or a thread, from its claim (started_at) to its start
    ALTER TABLE runs ADD COLUMN waited_us NOT NULL DEFAULT 0;
    """,
)

# Filled from one JSON text for each batch, then joined: no statement is run row by row.
SETTLE_TABLE: Final = """
    CREATE TEMP TABLE IF NOT EXISTS settling (
        i INTEGER PRIMARY KEY, sid, run_for, fence, ended_at, following, epoch, kind, outcome, attempt, owner, wake_at,
        attempt_at, waited_us
    )
"""
