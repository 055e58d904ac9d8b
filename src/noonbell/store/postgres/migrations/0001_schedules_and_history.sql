-- Instants are whole microseconds since 1970. Texts that are keys or are sorted use the collation "C": the order of a
-- page must not depend on the locale of the server.

-- --- schedules ------------------------------------------------------------------------------------------------------

-- The changing part of a schedule. A claim and a settle each write one row here, and none in schedule_definitions. The
-- lock of this row is the lock of the schedule.
--
-- The slot is the run in flight: the first attempt of a scheduled run, with fence 1 and no crash, that is executing. All
-- of its columns are NULL while there is none, and no index has one of them. Any other live run is in runs_live.
--
-- The order of the columns is meant: those that neither changes, those that a claim changes, those that a settle
-- changes. The log holds what lies between the first and the last byte that differ. With room in its page, a settle
-- that leaves next_run_at as it is writes to no index.
--
-- The revision is that of the definition. It is random, so that no two definitions of a schedule have the same one, not
-- even after a database was restored: a definition is used again under the revision that it was read with.
CREATE TABLE schedule_state (
    sid int8 PRIMARY KEY,
    lane_no int4 NOT NULL,
    enabled int2 NOT NULL DEFAULT 1,
    last_ended_manual int2 NOT NULL DEFAULT 0,
    removed int2 NOT NULL DEFAULT 0,
    epoch int8 NOT NULL DEFAULT 1,
    revision int8 NOT NULL DEFAULT floor(random() * 9007199254740992)::int8,
    anchor_at int8,
    backlog_left int8,
    backlog_until int8,
    last_failure_at int8,
    cursor_at int8,
    next_run_at int8,
    last_run_for int8,
    last_run_at int8,
    last_attempt_at int8,
    slot_for int8,
    slot_at int8,
    slot_owner int4,
    slot_epoch int4,
    slot_cause int2,
    last_success_at int8,
    last_ended_for int8,
    ended_runs int8 NOT NULL DEFAULT 0,
    succeeded_runs int8 NOT NULL DEFAULT 0
) WITH (fillfactor = 60);
CREATE INDEX idx_schedules_next_run ON schedule_state (lane_no, next_run_at) WHERE enabled = 1;
-- The list of disabled schedules. Rows that fire are not in it.
CREATE INDEX idx_schedules_disabled ON schedule_state (sid) WHERE enabled = 0 AND removed = 0;

-- The part that create, edit, declare and delete write.
CREATE TABLE schedule_definitions (
    sid int8 PRIMARY KEY,
    schedule_id text COLLATE "C" NOT NULL,
    name text COLLATE "C",
    type text NOT NULL DEFAULT 'cron',
    spec text,
    timezone text DEFAULT 'UTC',
    quiet_hours_policy_id text,
    catch_up_policy text NOT NULL DEFAULT 'run_once',
    payload text,
    definition text,
    managed_by text COLLATE "C" NOT NULL,
    team text COLLATE "C" NOT NULL DEFAULT 'default',
    lane text COLLATE "C",
    retry_delay_us int8,
    created_at int8,
    updated_at int8,
    removed_at int8
);
CREATE UNIQUE INDEX idx_schedules_id ON schedule_definitions (schedule_id);
CREATE UNIQUE INDEX idx_schedules_name ON schedule_definitions (managed_by, name, team) WHERE removed_at IS NULL;
CREATE INDEX idx_schedules_team ON schedule_definitions (team, sid) WHERE removed_at IS NULL AND team <> 'default';
CREATE INDEX idx_schedules_type ON schedule_definitions (team, type, sid) WHERE type <> 'cron' AND removed_at IS NULL;
CREATE INDEX idx_schedules_quiet_hours ON schedule_definitions (quiet_hours_policy_id)
    WHERE quiet_hours_policy_id IS NOT NULL;

-- Whatever changes a definition gives it a new revision, in the same transaction.
CREATE FUNCTION noonbell_new_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'UPDATE %I.schedule_state s SET revision = DEFAULT FROM changed c WHERE s.sid = c.sid', TG_TABLE_SCHEMA
    );
    RETURN NULL;
END
$$;
CREATE TRIGGER definitions_have_revisions AFTER UPDATE ON schedule_definitions
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION noonbell_new_revision();

-- A lane has the name "lane:<lane>". Declared tasks have a lane of their own: the name of their owner. A number is
-- never changed and never used again.
CREATE TABLE lane_numbers (
    no int4 PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);

-- Durable schedules for people and reports. Noonbell itself does not read it.
CREATE VIEW schedules AS
SELECT
    d.schedule_id,
    d.name,
    s.enabled = 1 AS enabled,
    d.type,
    d.spec,
    timestamptz '1970-01-01 00:00:00+00' + s.next_run_at * interval '1 microsecond' AS next_run_at,
    timestamptz '1970-01-01 00:00:00+00' + s.last_run_at * interval '1 microsecond' AS last_run_at,
    d.timezone,
    d.quiet_hours_policy_id,
    d.catch_up_policy,
    d.payload,
    timestamptz '1970-01-01 00:00:00+00' + d.created_at * interval '1 microsecond' AS created_at,
    timestamptz '1970-01-01 00:00:00+00' + d.updated_at * interval '1 microsecond' AS updated_at
FROM schedule_state s JOIN schedule_definitions d ON d.sid = s.sid
WHERE d.lane IS NOT NULL AND d.removed_at IS NULL;

CREATE TABLE schedule_tags (
    tag text COLLATE "C" NOT NULL,
    team text COLLATE "C" NOT NULL,
    sid int8 NOT NULL,
    PRIMARY KEY (tag, team, sid)
);

CREATE TABLE quiet_hours_policies (
    policy_id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    document text NOT NULL,
    created_at int8 NOT NULL,
    updated_at int8 NOT NULL,
    team text COLLATE "C" NOT NULL
);

CREATE TABLE zone_rules (
    timezone text COLLATE "C" PRIMARY KEY,
    zone_hash text NOT NULL
);

-- --- the ledger -----------------------------------------------------------------------------------------------------

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

-- The instances that have executed runs. A number is never changed and never used again; 0 stands for none.
CREATE TABLE owners (
    no int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance text COLLATE "C" NOT NULL UNIQUE
);

-- Every live run, whether it is in the slot of its schedule or in runs_live. The numbers of causes: see attempts.
CREATE VIEW live_runs AS
SELECT sid, kind, run_for, fence, owner, state, attempt, wake_at, started_at, attempt_at, crashes, epoch, cause
FROM runs_live
UNION ALL
SELECT
    s.sid,
    'scheduled'::text COLLATE "C",
    s.slot_for,
    1::int8,
    (SELECT o.instance FROM owners o WHERE o.no = s.slot_owner),
    'running'::text COLLATE "C",
    1::int8,
    NULL::int8,
    s.slot_at,
    s.slot_at,
    0::int8,
    s.slot_epoch::int8,
    (ARRAY['cron', 'retry', 'orphan', 'manual', 'api', 'manual_once', 'api_once', 'api_retry', 'one_shot'])
        [s.slot_cause + 1]
FROM schedule_state s WHERE s.slot_for IS NOT NULL;

-- The history of a schedule is a chain: its state names the run that ended last, each run the one that ended before
-- it. kind: 0 manual, 1 scheduled. outcome: 0 succeeded, 1 failed, 2 abandoned, 3 unknown.
--
-- A run started (with its claim) delay_us after run_for, and ended duration_us after that.
--
-- A row is 64 bytes: 24 of the header, which has no room for a NULL among so many columns, and 40 of values. So what is
-- the same for most runs takes one byte. extra is empty for a run with one attempt that waited for nothing and did not
-- end after a manual run. Otherwise it has three numbers, with commas between them: the attempts; for how many
-- microseconds the first of them waited for an HTTP slot or a thread, from its start on; 1 if the run that ended before
-- was manual, or 0. Where delay_us or duration_us is more than an int4 holds (35 minutes), both are 0, and the instants
-- of start and end follow in extra as the fourth and the fifth number.
--
-- Days become partitions of their own as they come; what has none is kept by the last one, so no run is ever refused.
CREATE TABLE runs (
    run_for int8 NOT NULL,
    prev_for int8,
    delay_us int4 NOT NULL,
    duration_us int4 NOT NULL,
    sid int4 NOT NULL,
    owner int4 NOT NULL,
    epoch int4 NOT NULL,
    kind int2 NOT NULL,
    outcome "char" NOT NULL,
    extra text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (run_for, sid, kind)
) PARTITION BY RANGE (run_for);
CREATE TABLE runs_default PARTITION OF runs DEFAULT;
CREATE INDEX idx_runs_unsuccessful ON runs (run_for, sid, kind) WHERE outcome <> '0';

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

-- cause: 0 cron, 1 retry, 2 orphan, 3 manual, 4 api, 5 manual_once, 6 api_once, 7 api_retry, 8 one_shot.
CREATE TABLE attempts (
    run_for int8 NOT NULL,
    started_at int8,
    ended_at int8 NOT NULL,
    sid int4 NOT NULL,
    attempt int4 NOT NULL,
    owner int4,
    kind int2 NOT NULL,
    outcome int2 NOT NULL,
    cause int2 NOT NULL,
    error text,
    detail bytea,
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

CREATE TABLE pruned_days (
    sid int8 NOT NULL,
    epoch int8 NOT NULL,
    day int8 NOT NULL,
    first_at int8 NOT NULL,
    to_at int8 NOT NULL,
    fired int8 NOT NULL,
    passed int8 NOT NULL,
    last_for int8,
    last_started_at int8,
    PRIMARY KEY (sid, epoch, day)
);

-- Pruning looks for what is old; these indexes are small, because both tables grow in the order of time.
CREATE INDEX idx_spans_to ON spans USING brin (to_at) WITH (autosummarize = on);
CREATE INDEX idx_attempts_for ON attempts USING brin (run_for) WITH (autosummarize = on);

CREATE TABLE lifecycle (
    id int8 PRIMARY KEY,
    managed_by text COLLATE "C" NOT NULL,
    at int8 NOT NULL,
    instance text NOT NULL,
    event text NOT NULL,
    detail text NOT NULL
);
CREATE INDEX idx_lifecycle_owner ON lifecycle (managed_by, id);
-- the events of one engine among those of its lane
CREATE INDEX idx_lifecycle_instance ON lifecycle (managed_by, instance, id);

CREATE TABLE audit_events (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at int8 NOT NULL,
    event text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    actor text NOT NULL,
    detail text NOT NULL,
    team text COLLATE "C"
);
CREATE INDEX idx_audit_events_subject ON audit_events (subject, id);
CREATE INDEX idx_audit_events_at ON audit_events (at);
-- the events of one team among those of many; where there is one team alone, it costs nothing
CREATE INDEX idx_audit_events_team ON audit_events (team, id) WHERE team <> 'default';
CREATE FUNCTION noonbell_audit_events_are_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit events are never changed';
END
$$;
CREATE TRIGGER audit_events_are_final BEFORE UPDATE ON audit_events
    FOR EACH ROW EXECUTE FUNCTION noonbell_audit_events_are_final();

-- --- messages -------------------------------------------------------------------------------------------------------

CREATE TABLE outbox (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sid int8 NOT NULL,
    lane text COLLATE "C" NOT NULL,
    message_id text NOT NULL,
    target text NOT NULL,
    body text NOT NULL,
    created_at int8 NOT NULL,
    team text COLLATE "C" NOT NULL
);
CREATE INDEX idx_outbox_stream ON outbox (sid, id);

-- A row for each schedule with messages in the outbox. An owner is delivering; without one it waits until wake_at.
CREATE TABLE outbox_streams (
    sid int8 PRIMARY KEY,
    lane text COLLATE "C" NOT NULL,
    wake_at int8 NOT NULL,
    owner text COLLATE "C",
    attempt int8 NOT NULL DEFAULT 0,
    error text
);
CREATE INDEX idx_outbox_streams_wake ON outbox_streams (lane, wake_at) WHERE owner IS NULL;

CREATE TABLE dead_letters (
    id int8 PRIMARY KEY,
    sid int8 NOT NULL,
    lane text COLLATE "C" NOT NULL,
    message_id text NOT NULL,
    target text NOT NULL,
    body text NOT NULL,
    created_at int8 NOT NULL,
    team text COLLATE "C" NOT NULL,
    died_at int8 NOT NULL,
    attempts int8 NOT NULL,
    error text NOT NULL
);
CREATE INDEX idx_dead_letters_sid ON dead_letters (sid, id);
CREATE INDEX idx_dead_letters_died ON dead_letters (died_at);

-- Small things that people put in and take out: secrets, channels, rules, monitors, keys. The body is JSON.
CREATE TABLE documents (
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    team text COLLATE "C" NOT NULL,
    version int8 NOT NULL,
    body text NOT NULL,
    created_at int8 NOT NULL,
    updated_at int8 NOT NULL,
    wake_at int8,
    PRIMARY KEY (kind, id)
);
CREATE INDEX idx_documents_team ON documents (kind, team, id);
CREATE INDEX idx_documents_wake ON documents (kind, wake_at) WHERE wake_at IS NOT NULL;

-- --- engines --------------------------------------------------------------------------------------------------------

-- Leases: the holder of a name, and when the lease ends. The clock is the database's own, which all holders share.
CREATE TABLE instances (
    name text COLLATE "C" PRIMARY KEY,
    token text COLLATE "C" NOT NULL,
    holder text NOT NULL,
    taken_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);

-- What engines report of themselves. One is alive for as long as its lease lasts: the row "engine:<instance>" of
-- `instances`. Instants are those of the engine's own clock; seen_at is that of the database.
CREATE TABLE engines (
    instance text COLLATE "C" PRIMARY KEY,
    lane text COLLATE "C" NOT NULL,
    host text NOT NULL,
    pid int8 NOT NULL,
    version text NOT NULL,
    zone_data text NOT NULL,
    joined_at int8 NOT NULL,
    up_since int8 NOT NULL,
    state text NOT NULL,
    load text NOT NULL,
    seen_at timestamptz NOT NULL,
    last_poll_at int8
);
CREATE INDEX idx_engines_lane ON engines (lane, instance);

-- When each lane was last polled, and the latest stretches without a poll, as a JSON list. Instants are those of the
-- engines' clock.
CREATE TABLE lanes (
    lane text COLLATE "C" PRIMARY KEY,
    last_poll_at int8 NOT NULL,
    grace_us int8 NOT NULL,
    gaps text NOT NULL
);
