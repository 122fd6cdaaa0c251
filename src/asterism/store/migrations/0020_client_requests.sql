-- What the program that sent a message asks for beside it, as JSON: its tools, its instructions, its history.
ALTER TABLE inbox ADD COLUMN client TEXT;
