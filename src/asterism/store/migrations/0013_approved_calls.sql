-- What was approved is what is run: the tool as it was when a question was asked, and what a grant covers.
ALTER TABLE approvals ADD COLUMN definition TEXT NOT NULL DEFAULT '';  -- digest of the tool; '': not known

ALTER TABLE grants ADD COLUMN deeds TEXT;                              -- JSON: what calls may do at most; NULL: anything
ALTER TABLE grants ADD COLUMN arguments TEXT;                          -- JSON: the only arguments; NULL: any
ALTER TABLE grants ADD COLUMN amount DOUBLE PRECISION;                 -- up to which amount each
ALTER TABLE grants ADD COLUMN per_day BIGINT;                          -- how many calls in 24 hours
ALTER TABLE grants ADD COLUMN definition TEXT;                         -- digest of the tool; NULL: whatever has the name
