-- When each lane was last polled, and the latest stretches without a poll, as a JSON list. Instants are those of the
-- engines' clock.

ALTER TABLE engines ADD COLUMN last_poll_at int8;

CREATE TABLE lanes (
    lane text COLLATE "C" PRIMARY KEY,
    last_poll_at int8 NOT NULL,
    grace_us int8 NOT NULL,
    gaps text NOT NULL
);
INSERT INTO lanes SELECT substr(managed_by, 6), max(at), 60000000, '[]' FROM lifecycle
    WHERE managed_by LIKE 'lane:%' GROUP BY managed_by;
