-- Approvals: the exact call, who may answer, where and when they are asked; and what was granted for longer.

ALTER TABLE approvals ADD COLUMN tool TEXT NOT NULL DEFAULT '';
ALTER TABLE approvals ADD COLUMN arguments TEXT NOT NULL DEFAULT '';    -- JSON as the model wrote it
ALTER TABLE approvals ADD COLUMN deeds TEXT NOT NULL DEFAULT '';        -- JSON list: what the call does
ALTER TABLE approvals ADD COLUMN reason TEXT NOT NULL DEFAULT '';
ALTER TABLE approvals ADD COLUMN reviewers TEXT NOT NULL DEFAULT '["owner"]';
ALTER TABLE approvals ADD COLUMN rounds BIGINT NOT NULL DEFAULT 0;      -- how often it was announced
ALTER TABLE approvals ADD COLUMN next_at BIGINT;                        -- when to look at it again; NULL: never
ALTER TABLE approvals ADD COLUMN expires_at BIGINT;
ALTER TABLE approvals ADD COLUMN place TEXT;                            -- channel:address where it was answered
ALTER TABLE approvals ADD COLUMN edited TEXT;                           -- JSON: the arguments as a person changed them
ALTER TABLE approvals ADD COLUMN grant_id TEXT;
ALTER TABLE approvals ADD COLUMN announced TEXT NOT NULL DEFAULT '{}';  -- JSON: channel:address to the latest round there
ALTER TABLE approvals ADD COLUMN announced_at BIGINT;
CREATE INDEX approvals_due ON approvals (next_at) WHERE decided_at IS NULL AND next_at IS NOT NULL;

CREATE TABLE grants (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    tool          TEXT NOT NULL,                -- a name, or a glob
    agent_id      TEXT,                         -- NULL: every agent's calls
    pattern       TEXT NOT NULL,                -- JSON: a glob for each argument that matters
    turn_id       TEXT,
    until         BIGINT,
    uses          BIGINT,                       -- how many calls are left; NULL: any number
    given_by      TEXT NOT NULL,
    given_at      BIGINT NOT NULL,
    approval_id   TEXT,
    revoked_at    BIGINT
);
CREATE INDEX grants_live ON grants (constellation, agent_id) WHERE revoked_at IS NULL;
