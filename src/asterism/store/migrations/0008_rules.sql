-- Rules for the tools of an agent, and when tools last succeeded that rules of time are for.

ALTER TABLE agents ADD COLUMN rules TEXT;      -- JSON list; NULL: none

CREATE TABLE tool_runs (
    agent_id TEXT NOT NULL,
    tool     TEXT NOT NULL,
    at       BIGINT NOT NULL,                  -- when it last succeeded
    PRIMARY KEY (agent_id, tool)
);
