-- A group looks at its unfinished turns with every write, however many turns it has taken.
CREATE INDEX turns_unfinished ON turns (agent_id) WHERE ended_at IS NULL;
