-- How long the first attempt of a run waited for an HTTP slot or a thread, from its claim (`started_at`) to its start.

ALTER TABLE runs ADD COLUMN waited_us int8 NOT NULL DEFAULT 0;
