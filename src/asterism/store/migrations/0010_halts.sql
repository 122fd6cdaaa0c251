-- Halts: while one is not lifted, no agent of its constellation takes a turn.

CREATE TABLE halts (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    agent_id      TEXT,                        -- who called for it; NULL: the owner
    turn_id       TEXT,
    severity      TEXT NOT NULL,
    reason        TEXT NOT NULL,
    at            BIGINT NOT NULL,
    lifted_at     BIGINT,
    lifted_by     TEXT
);
CREATE INDEX halts_open ON halts (constellation, at) WHERE lifted_at IS NULL;
