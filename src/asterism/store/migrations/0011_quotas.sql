-- Calls that a policy with a quota has let pass.
CREATE TABLE quota_uses (
    agent_id TEXT NOT NULL,
    policy   TEXT NOT NULL,
    at       BIGINT NOT NULL,
    amount   DOUBLE PRECISION NOT NULL
);
CREATE INDEX quota_uses_policy ON quota_uses (agent_id, policy, at);
