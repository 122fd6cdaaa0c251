-- Images and other large contents, by their SHA-256: the same bytes are kept once.

CREATE TABLE blobs (
    id         TEXT PRIMARY KEY,
    type       TEXT NOT NULL,
    body       BLOB NOT NULL,
    created_at BIGINT NOT NULL
);

ALTER TABLE inbox ADD COLUMN schema TEXT;      -- the JSON schema that the answer must fulfil
