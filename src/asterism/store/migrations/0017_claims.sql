-- Who tries a delivery now: what a worker that has died was trying is tried again by another.
ALTER TABLE outbox ADD COLUMN claimed_by BIGINT;                       -- a worker; NULL: nobody, or the only process
