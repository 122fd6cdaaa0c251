-- Spending: one row for each call that costs money, and running totals that caps are held to.
-- Amounts are nano-dollars. Days and months are those of the configured time zone.

CREATE TABLE charges (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    agent_id      TEXT NOT NULL,
    person        TEXT,                        -- channel:sender
    party         TEXT,                        -- the group that the agent spoke in
    turn_id       TEXT NOT NULL,
    key           TEXT NOT NULL,               -- the step that asked
    model         TEXT NOT NULL,
    day           TEXT NOT NULL,
    month         TEXT NOT NULL,
    state         TEXT NOT NULL,               -- reserved, settled, presumed
    amount        BIGINT NOT NULL,             -- the worst case while reserved or presumed
    tokens_in     BIGINT NOT NULL DEFAULT 0,
    tokens_out    BIGINT NOT NULL DEFAULT 0,
    tokens_cached BIGINT NOT NULL DEFAULT 0,
    tokens_written BIGINT NOT NULL DEFAULT 0,
    at            BIGINT NOT NULL,
    until         BIGINT NOT NULL              -- when its turn has ended for sure
) WITHOUT ROWID;
CREATE INDEX charges_open ON charges (until) WHERE state = 'reserved';
CREATE INDEX charges_turn ON charges (turn_id);
CREATE INDEX charges_day ON charges (constellation, day);

CREATE TABLE totals (
    constellation TEXT NOT NULL,
    period        TEXT NOT NULL,               -- 2026-11-16 or 2026-11
    scope         TEXT NOT NULL,               -- all, agent:ID, person:CHANNEL:SENDER, group:NAME
    spent         BIGINT NOT NULL,
    presumed      BIGINT NOT NULL,
    reserved      BIGINT NOT NULL,
    warned        BIGINT NOT NULL DEFAULT 0,   -- the cap whose warning was given
    PRIMARY KEY (constellation, period, scope)
) WITHOUT ROWID;
