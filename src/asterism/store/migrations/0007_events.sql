-- Events: what was done, in chains of hashes. Secrets: keys of others, encrypted.

CREATE TABLE events (
    chain    TEXT NOT NULL,                    -- an agent's id, or home:CONSTELLATION
    number   BIGINT NOT NULL,                  -- 1, 2, 3 … without a gap
    at       BIGINT NOT NULL,
    kind     TEXT NOT NULL,
    actor    TEXT NOT NULL,
    agent_id TEXT,                             -- whom it is about
    turn_id  TEXT,
    body     BLOB,                             -- JSON; NULL: forgotten
    salt     BLOB,                             -- NULL: forgotten
    digest   BLOB NOT NULL,                    -- SHA-256 of salt and body
    hash     BLOB NOT NULL,                    -- SHA-256 of the hash before, the digest and everything else
    PRIMARY KEY (chain, number)
) WITHOUT ROWID;
CREATE INDEX events_at ON events (at);

-- The head of each chain, so that one that was cut off is noticed.
CREATE TABLE chains (
    id     TEXT PRIMARY KEY,
    length BIGINT NOT NULL,
    hash   BLOB NOT NULL
) WITHOUT ROWID;

-- Which length of each chain was last written into the home's. Apart, since heads are locked by those who append.
CREATE TABLE anchors (
    chain  TEXT PRIMARY KEY,
    length BIGINT NOT NULL
) WITHOUT ROWID;

CREATE TABLE data_keys (
    id         TEXT PRIMARY KEY,
    wrapped    BLOB NOT NULL,                  -- the key, encrypted with the master key
    nonce      BLOB NOT NULL,
    master     TEXT NOT NULL,                  -- a fingerprint of the master key
    created_at BIGINT NOT NULL
);

CREATE TABLE secrets (
    constellation TEXT NOT NULL,
    name          TEXT NOT NULL,
    ciphertext    BLOB NOT NULL,
    nonce         BLOB NOT NULL,
    key_id        TEXT NOT NULL,               -- of data_keys
    created_at    BIGINT NOT NULL,
    used_at       BIGINT,
    PRIMARY KEY (constellation, name)
);
