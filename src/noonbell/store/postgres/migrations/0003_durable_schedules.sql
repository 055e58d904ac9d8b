-- What a durable schedule says beside the columns that every schedule has.
ALTER TABLE schedules ADD COLUMN definition text;
ALTER TABLE schedules ADD COLUMN lane text COLLATE "C";
ALTER TABLE schedules ADD COLUMN anchor_at int8;
ALTER TABLE schedules ADD COLUMN backlog_left int8;
ALTER TABLE schedules ADD COLUMN backlog_until int8;
ALTER TABLE schedules ADD COLUMN last_run_for int8;
-- What a lane looks for, however many schedules other lanes have.
CREATE INDEX idx_schedules_lane ON schedules (lane, next_run_at)
    WHERE enabled = 1 AND lane IS NOT NULL AND next_run_at IS NOT NULL;
-- Lists. An index that holds the rows that fire is written at every fire, so these hold others: of the teams beside the
-- first, and those that are disabled.
CREATE INDEX idx_schedules_team ON schedules (team, sid) WHERE removed_at IS NULL AND team <> 'default';
CREATE INDEX idx_schedules_disabled ON schedules (team, sid) WHERE enabled = 0 AND removed_at IS NULL;
CREATE TABLE schedule_tags (
    tag text COLLATE "C" NOT NULL,
    team text COLLATE "C" NOT NULL,
    sid int8 NOT NULL,
    PRIMARY KEY (tag, team, sid)
);
-- The end of a run changes no indexed column of its schedule: with room in the page, no index is touched either.
ALTER TABLE schedules SET (fillfactor = 80);
CREATE INDEX idx_schedules_quiet_hours ON schedules (quiet_hours_policy_id) WHERE quiet_hours_policy_id IS NOT NULL;

ALTER TABLE attempts ADD COLUMN detail bytea;

-- The history of a schedule is a chain: its row names the run that ended last, each run the one that ended before it.
ALTER TABLE runs ADD COLUMN prev_for int8;
ALTER TABLE runs ADD COLUMN prev_manual int2 NOT NULL DEFAULT 0;
ALTER TABLE schedules ADD COLUMN last_ended_for int8;
ALTER TABLE schedules ADD COLUMN last_ended_manual int2 NOT NULL DEFAULT 0;
ALTER TABLE schedules ADD COLUMN ended_runs int8 NOT NULL DEFAULT 0;
ALTER TABLE schedules ADD COLUMN succeeded_runs int8 NOT NULL DEFAULT 0;
UPDATE runs r SET prev_for = e.prev_for, prev_manual = coalesce((e.prev_kind = 'manual')::int, 0)
FROM (
    SELECT run_for, sid, kind, lag(run_for) OVER w AS prev_for, lag(kind) OVER w AS prev_kind
    FROM runs WINDOW w AS (PARTITION BY sid ORDER BY ended_at, run_for, kind)
) e WHERE e.run_for = r.run_for AND e.sid = r.sid AND e.kind = r.kind;
UPDATE schedules s SET last_ended_for = e.run_for, last_ended_manual = (e.kind = 'manual')::int, ended_runs = e.n,
    succeeded_runs = e.succeeded
FROM (
    SELECT sid, run_for, kind, count(*) OVER w AS n, count(*) FILTER (WHERE outcome = 'succeeded') OVER w AS succeeded,
        row_number() OVER (PARTITION BY sid ORDER BY ended_at DESC, run_for DESC, kind DESC) AS place
    FROM runs WINDOW w AS (PARTITION BY sid)
) e WHERE e.sid = s.sid AND e.place = 1;
CREATE INDEX idx_runs_unsuccessful ON runs (run_for, sid, kind) WHERE outcome <> 'succeeded';

CREATE TABLE quiet_hours_policies (
    policy_id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    document text NOT NULL,
    created_at int8 NOT NULL,
    updated_at int8 NOT NULL,
    team text COLLATE "C" NOT NULL
);

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

CREATE TABLE zone_rules (
    timezone text COLLATE "C" PRIMARY KEY,
    zone_hash text NOT NULL
);

-- Pruning looks for what is old; these indexes are small, because both tables grow in the order of time.
CREATE INDEX idx_spans_to ON spans USING brin (to_at) WITH (autosummarize = on);
CREATE INDEX idx_attempts_for ON attempts USING brin (run_for) WITH (autosummarize = on);
CREATE INDEX idx_dead_letters_died ON dead_letters (died_at);
