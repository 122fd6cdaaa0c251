-- The time zone of a schedule's rule. Rules made before this were in UTC.
ALTER TABLE schedules ADD COLUMN zone TEXT NOT NULL DEFAULT 'UTC';
