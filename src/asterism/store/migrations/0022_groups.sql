-- Groups: a group is a row of `agents` of the kind 'group', so that it has an inbox, a lane and a journal.
ALTER TABLE agents ADD COLUMN kind TEXT NOT NULL DEFAULT 'agent';

CREATE TABLE groups (
    id          TEXT PRIMARY KEY,              -- that of its row in agents
    pattern     TEXT NOT NULL,
    options     TEXT NOT NULL,                 -- JSON: the options of the pattern
    memory      TEXT NOT NULL,                 -- JSON: what the pattern keeps from turn to turn
    description TEXT NOT NULL,
    joined      BIGINT NOT NULL DEFAULT 0,     -- counts members that ever joined
    wake_at     BIGINT                         -- when to look at it again; NULL: when something comes in
);
CREATE INDEX groups_wake ON groups (wake_at) WHERE wake_at IS NOT NULL;

CREATE TABLE group_members (
    group_id     TEXT NOT NULL,
    agent_id     TEXT NOT NULL,
    position     BIGINT NOT NULL,              -- the order in which members joined
    role         TEXT NOT NULL,
    domain       TEXT NOT NULL,                -- of a specialist
    capabilities TEXT NOT NULL,                -- JSON list
    weight       DOUBLE PRECISION NOT NULL,    -- of its vote
    active       BIGINT NOT NULL,
    since        BIGINT NOT NULL,
    PRIMARY KEY (group_id, agent_id)
);
CREATE INDEX group_members_agent ON group_members (agent_id);

CREATE TABLE agent_messages (
    message_id    TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    sender_id     TEXT NOT NULL,               -- an agent or a group
    recipient_id  TEXT NOT NULL,
    thread        TEXT NOT NULL,               -- the turn that the exchange began with
    depth         BIGINT NOT NULL,             -- how many messages led to it
    turn_id       TEXT NOT NULL,               -- the turn that sent it
    key           TEXT NOT NULL,               -- of a question of a group, its key in the group's turn
    at            BIGINT NOT NULL
);
CREATE INDEX agent_messages_thread ON agent_messages (thread);
CREATE INDEX agent_messages_pair ON agent_messages (sender_id, recipient_id, at);
