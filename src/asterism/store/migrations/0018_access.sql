-- Who may use the HTTP API: tokens, the passwords of users, and their sessions of the web page.
CREATE TABLE tokens (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    name          TEXT NOT NULL,
    hash          TEXT NOT NULL,               -- argon2 of the secret
    role          TEXT NOT NULL,
    scopes        TEXT NOT NULL,               -- JSON list of acts; empty: all that the role allows
    agents        TEXT NOT NULL,               -- JSON list of ids; empty: all agents
    person_id     TEXT,                        -- as whom it acts; NULL: as the owner
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT,
    used_at       BIGINT,
    revoked_at    BIGINT
) WITHOUT ROWID;
CREATE UNIQUE INDEX tokens_name ON tokens (constellation, name) WHERE revoked_at IS NULL;

CREATE TABLE users (
    constellation TEXT NOT NULL,
    person_id     TEXT NOT NULL,
    hash          TEXT NOT NULL,               -- argon2 of the password
    changed_at    BIGINT NOT NULL,
    PRIMARY KEY (constellation, person_id)
) WITHOUT ROWID;

CREATE TABLE web_sessions (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    person_id     TEXT NOT NULL,
    digest        BLOB NOT NULL,               -- SHA-256 of the secret
    created_at    BIGINT NOT NULL,
    seen_at       BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX web_sessions_person ON web_sessions (constellation, person_id);
