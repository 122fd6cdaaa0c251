-- The hours of the day in which a schedule does not fire, such as 22:00-08:00, in its zone. NULL: it fires at any time.
ALTER TABLE schedules ADD COLUMN quiet TEXT;
