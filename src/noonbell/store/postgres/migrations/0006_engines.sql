-- What engines tell of themselves. One is alive for as long as its lease lasts: the row "engine:<instance>" of
-- `instances`. Instants are those of the engine's own clock; when it was seen is told by the clock that all share.

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
    seen_at timestamptz NOT NULL
);
CREATE INDEX idx_engines_lane ON engines (lane, instance);

-- the events of one engine among those of its lane
CREATE INDEX idx_lifecycle_instance ON lifecycle (managed_by, instance, id);
