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
