-- The constellations that a server was told to serve beside its own.
CREATE TABLE constellations (
    name       TEXT PRIMARY KEY,
    created_at BIGINT NOT NULL
) WITHOUT ROWID;

-- Requests that came with an Idempotency-Key, and what they were answered.
CREATE TABLE idempotency_keys (
    constellation TEXT NOT NULL,
    caller        TEXT NOT NULL,               -- the token, or the session of the web page
    key           TEXT NOT NULL,
    request       BLOB NOT NULL,               -- SHA-256 of the method, the path and the body
    status        BIGINT,                      -- NULL: not answered yet
    answer        BLOB,                        -- encrypted with the secret of the caller
    created_at    BIGINT NOT NULL,
    PRIMARY KEY (constellation, caller, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- When an agent was archived: it takes no turns until it is unarchived.
ALTER TABLE agents ADD COLUMN archived_at BIGINT;
