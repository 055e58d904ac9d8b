-- Lists of the rarer kinds, in the order of sids; most schedules are cron, and cost nothing here.
CREATE INDEX idx_schedules_type ON schedules (team, type, sid) WHERE type <> 'cron' AND removed_at IS NULL;
