-- Turns that were under way when a process ended abnormally, and how often that has happened.
CREATE TABLE crashes (
    turn_id   TEXT PRIMARY KEY,
    agent_id  TEXT NOT NULL,
    seq       BIGINT NOT NULL,                 -- the last entry of the turn at that end; 0: it had none
    ends      BIGINT NOT NULL,                 -- ends while the process worked at it, with that entry the last
    total     BIGINT NOT NULL,                 -- ends while it was under way in any way
    executing BIGINT NOT NULL                  -- whether a worker works at it now, and does not only wait for a model
);
CREATE INDEX crashes_agent ON crashes (agent_id);

-- Whose message waits, so that nobody's messages hold up all others.
ALTER TABLE inbox ADD COLUMN person TEXT;      -- who has handed it in; NULL: the owner, or another agent
ALTER TABLE inbox ADD COLUMN token TEXT;       -- the token that it was handed in with; NULL: without one
ALTER TABLE inbox ADD COLUMN round BIGINT NOT NULL DEFAULT 0;  -- an earlier round goes first, in order of arrival
CREATE INDEX inbox_person ON inbox (person, agent_id, round) WHERE person IS NOT NULL;
CREATE INDEX inbox_others ON inbox (agent_id) WHERE person IS NOT NULL;
CREATE INDEX inbox_token ON inbox (token) WHERE token IS NOT NULL;
