-- When each lane was last polled, and the latest stretches without a poll, as a JSON list. Instants are those of the
-- engines' clock.

ALTER TABLE engines ADD COLUMN last_poll_at int8;

CREATE TABLE lanes (
    lane text COLLATE "C" PRIMARY KEY,
    last_poll_at int8 NOT NULL,
    grace_us int8 NOT NULL,
    gaps text NOT NULL
);
INSERT INTO lanes SELECT lane, max(at), 60000000, '[]' FROM (
    SELECT substr(managed_by, 6) AS lane, at FROM lifecycle WHERE managed_by LIKE 'lane:%'
    UNION ALL SELECT lane, (extract(epoch FROM seen_at) * 1000000)::int8 FROM engines
) AS seen GROUP BY lane;
