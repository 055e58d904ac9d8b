-- Who holds which name, until when. The clock is the database's own: the only one that all holders share.

CREATE TABLE instances (
    name text COLLATE "C" PRIMARY KEY,
    token text COLLATE "C" NOT NULL,
    holder text NOT NULL,
    taken_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
