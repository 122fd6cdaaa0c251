-- The spine: agents, what came in, the journal, what must go out.
-- Common subset of SQLite and PostgreSQL; the PostgreSQL driver reads BLOB as BYTEA and drops
-- WITHOUT ROWID. Times are milliseconds since 1970, UTC.

CREATE TABLE agents (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    name          TEXT NOT NULL,
    model         TEXT NOT NULL,
    system        TEXT NOT NULL,
    tools         TEXT,                        -- JSON list of names; NULL: every tool
    limits        TEXT NOT NULL,               -- JSON
    version       BIGINT NOT NULL DEFAULT 1,   -- counts edits
    arrivals      BIGINT NOT NULL DEFAULT 0,   -- counts what was put in the inbox
    length        BIGINT NOT NULL DEFAULT 0,   -- counts entries of the journal
    fence         BIGINT NOT NULL DEFAULT 0,   -- counts claims of the lane
    created_at    BIGINT NOT NULL,
    deleted_at    BIGINT
);
CREATE UNIQUE INDEX agents_name ON agents (constellation, name) WHERE deleted_at IS NULL;

-- Which external ids were taken in: a message is accepted once.
CREATE TABLE accepted (
    constellation TEXT NOT NULL,
    channel       TEXT NOT NULL,
    external_id   TEXT NOT NULL,
    message_id    TEXT NOT NULL,
    agent_id      TEXT NOT NULL,
    PRIMARY KEY (constellation, channel, external_id)
) WITHOUT ROWID;

-- What waits for its turn. The transaction that opens the turn takes the row out.
CREATE TABLE inbox (
    agent_id TEXT NOT NULL,
    arrival  BIGINT NOT NULL,
    id       TEXT NOT NULL,
    kind     TEXT NOT NULL,
    channel  TEXT NOT NULL,
    sender   TEXT,
    reply_to TEXT,
    body     BLOB NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (agent_id, arrival)
) WITHOUT ROWID;

CREATE TABLE turns (
    id        TEXT PRIMARY KEY,
    agent_id  TEXT NOT NULL,
    state     TEXT NOT NULL,
    channel   TEXT NOT NULL,
    reply_to  TEXT,
    first_seq BIGINT NOT NULL,
    last_seq  BIGINT NOT NULL,
    opened_at BIGINT NOT NULL,
    ended_at  BIGINT,
    tokens_in BIGINT NOT NULL DEFAULT 0,
    tokens_out BIGINT NOT NULL DEFAULT 0,
    tokens_cached BIGINT NOT NULL DEFAULT 0,
    error     TEXT
) WITHOUT ROWID;
CREATE INDEX turns_agent ON turns (agent_id, first_seq);
CREATE INDEX turns_open ON turns (agent_id) WHERE state = 'open';

-- The journal: one gapless sequence per agent, only ever appended to.
CREATE TABLE entries (
    agent_id TEXT NOT NULL,
    seq      BIGINT NOT NULL,
    turn_id  TEXT NOT NULL,
    kind     TEXT NOT NULL,
    key      TEXT NOT NULL,
    body     BLOB NOT NULL,
    meta     TEXT,
    at       BIGINT NOT NULL,
    PRIMARY KEY (agent_id, seq)
) WITHOUT ROWID;

CREATE TABLE approvals (
    id         TEXT PRIMARY KEY,
    agent_id   TEXT NOT NULL,
    turn_id    TEXT NOT NULL,
    key        TEXT NOT NULL,
    question   TEXT NOT NULL,
    asked_at   BIGINT NOT NULL,
    approved   BIGINT,
    note       TEXT,
    decided_by TEXT,
    decided_at BIGINT
);
CREATE INDEX approvals_open ON approvals (asked_at) WHERE decided_at IS NULL;
CREATE INDEX approvals_turn ON approvals (turn_id);

CREATE TABLE outbox (
    key        TEXT PRIMARY KEY,
    agent_id   TEXT NOT NULL,
    turn_id    TEXT NOT NULL,
    channel    TEXT NOT NULL,
    target     TEXT NOT NULL,
    number     BIGINT NOT NULL,                -- its place among what waits for this target
    body       TEXT NOT NULL,
    state      TEXT NOT NULL,
    attempts   BIGINT NOT NULL DEFAULT 0,
    next_at    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    sent_at    BIGINT,
    error      TEXT
);
CREATE INDEX outbox_open ON outbox (channel, target, number, key) WHERE state <> 'sent';

CREATE TABLE schedules (
    id         TEXT PRIMARY KEY,
    agent_id   TEXT NOT NULL,
    text       TEXT NOT NULL,
    due_at     BIGINT NOT NULL,
    cron       TEXT,                           -- NULL: once
    reply_to   TEXT,
    channel    TEXT,
    created_at BIGINT NOT NULL
);
CREATE INDEX schedules_due ON schedules (due_at);

-- What an owner must be told.
CREATE TABLE notices (
    id       TEXT PRIMARY KEY,
    agent_id TEXT NOT NULL,
    turn_id  TEXT,
    kind     TEXT NOT NULL,
    text     TEXT NOT NULL,
    at       BIGINT NOT NULL,
    seen_at  BIGINT
);
CREATE INDEX notices_unseen ON notices (at) WHERE seen_at IS NULL;
