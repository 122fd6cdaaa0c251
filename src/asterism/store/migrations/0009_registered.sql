-- Tools that were registered over the API or the command line: each change is a version of its own.

CREATE TABLE registered_tools (
    constellation TEXT NOT NULL,
    name          TEXT NOT NULL,
    version       BIGINT NOT NULL,
    spec          TEXT NOT NULL,               -- JSON: description, schema, source or address, deeds
    made_by       TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    removed_at    BIGINT,                      -- of the newest version: offered no more
    PRIMARY KEY (constellation, name, version)
);
