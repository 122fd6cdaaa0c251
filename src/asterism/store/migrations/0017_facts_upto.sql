-- The entry up to which an agent's journal was read for facts that last.
ALTER TABLE agents ADD COLUMN facts_upto BIGINT NOT NULL DEFAULT 0;
