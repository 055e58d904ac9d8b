-- Instants are whole microseconds since 1970. Texts that are keys or are sorted use the collation "C": the order of a
-- page must not depend on the locale of the server.

CREATE TABLE schedules (
    sid int8 PRIMARY KEY,
    schedule_id text COLLATE "C" NOT NULL,
    name text COLLATE "C",
    enabled int2 NOT NULL DEFAULT 1,
    type text NOT NULL DEFAULT 'cron',
    spec text,
    next_run_at int8,
    last_run_at int8,
    timezone text DEFAULT 'UTC',
    quiet_hours_policy_id text,
    catch_up_policy text NOT NULL DEFAULT 'run_once',
    payload text,
    created_at int8,
    updated_at int8,
    managed_by text COLLATE "C" NOT NULL,
    team text COLLATE "C" NOT NULL DEFAULT 'default',
    epoch int8 NOT NULL DEFAULT 1,
    cursor_at int8,
    retry_delay_us int8,
    last_attempt_at int8,
    last_success_at int8,
    last_failure_at int8,
    removed_at int8
);
CREATE UNIQUE INDEX idx_schedules_id ON schedules (schedule_id);
CREATE UNIQUE INDEX idx_schedules_name ON schedules (managed_by, name, team) WHERE removed_at IS NULL;
CREATE INDEX idx_schedules_next_run ON schedules (next_run_at) WHERE enabled = 1;

CREATE TABLE runs_live (
    sid int8 NOT NULL,
    kind text COLLATE "C" NOT NULL,
    run_for int8 NOT NULL,
    fence int8 NOT NULL,
    owner text COLLATE "C",
    state text COLLATE "C" NOT NULL,
    attempt int8 NOT NULL,
    wake_at int8,
    started_at int8,
    attempt_at int8,
    crashes int8 NOT NULL DEFAULT 0,
    epoch int8 NOT NULL,
    cause text NOT NULL,
    PRIMARY KEY (sid, kind, run_for)
);
CREATE INDEX idx_runs_live_wake ON runs_live (wake_at) WHERE state <> 'running';

-- Days become partitions of their own as they come; what has none is kept by the last one, so no run is ever refused.
CREATE TABLE runs (
    run_for int8 NOT NULL,
    sid int8 NOT NULL,
    kind text COLLATE "C" NOT NULL,
    outcome text NOT NULL,
    attempts int8 NOT NULL,
    started_at int8 NOT NULL,
    ended_at int8 NOT NULL,
    owner text NOT NULL,
    epoch int8 NOT NULL,
    PRIMARY KEY (run_for, sid, kind)
) PARTITION BY RANGE (run_for);
CREATE TABLE runs_default PARTITION OF runs DEFAULT;

CREATE TABLE spans (
    sid int8 NOT NULL,
    from_at int8 NOT NULL,
    to_at int8 NOT NULL,
    n int8 NOT NULL,
    verdict text NOT NULL,
    reason text NOT NULL,
    epoch int8 NOT NULL,
    PRIMARY KEY (sid, from_at)
);

CREATE TABLE attempts (
    sid int8 NOT NULL,
    run_for int8 NOT NULL,
    kind text COLLATE "C" NOT NULL,
    attempt int8 NOT NULL,
    outcome text NOT NULL,
    cause text NOT NULL,
    started_at int8,
    ended_at int8 NOT NULL,
    owner text,
    error text,
    PRIMARY KEY (sid, run_for, kind, attempt)
);

CREATE TABLE epochs (
    sid int8 NOT NULL,
    epoch int8 NOT NULL,
    from_at int8 NOT NULL,
    to_at int8,
    spec text NOT NULL,
    timezone text NOT NULL,
    zone_hash text NOT NULL,
    policies text NOT NULL,
    enabled int2 NOT NULL,
    PRIMARY KEY (sid, epoch)
);

CREATE TABLE lifecycle (
    id int8 PRIMARY KEY,
    managed_by text COLLATE "C" NOT NULL,
    at int8 NOT NULL,
    instance text NOT NULL,
    event text NOT NULL,
    detail text NOT NULL
);
CREATE INDEX idx_lifecycle_owner ON lifecycle (managed_by, id);
