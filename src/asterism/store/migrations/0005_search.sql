-- Search: what texts are found by. All of it is made of texts that are stored elsewhere, and can be made anew.
-- A shelf is what belongs to one owner: the journal of an agent, or an archive (an agent's own, or a source's).
-- Its texts are numbered: entries of a journal by their seq, passages by their number in the archive.

ALTER TABLE passages ADD COLUMN number BIGINT; -- its place on the shelf; a new one whenever its text changes; NULL: staged
UPDATE passages SET number = n.number FROM (
    SELECT id, ROW_NUMBER() OVER (PARTITION BY archive_id ORDER BY known_from, id) AS number FROM passages
    WHERE retracted_at IS NULL OR retracted_at <> 0
) AS n WHERE n.id = passages.id;
CREATE UNIQUE INDEX passages_number ON passages (archive_id, number);

CREATE TABLE shelves (
    id       BIGINT PRIMARY KEY,               -- short, since every posting carries it
    kind     TEXT NOT NULL,                    -- journal or archive
    owner_id TEXT NOT NULL,                    -- an agent or a source
    dropped  BIGINT NOT NULL                   -- counts how often something was taken off it
);
CREATE UNIQUE INDEX shelves_owner ON shelves (owner_id, kind);

-- What is known of the texts with the numbers first to last, at most 1,024 of them; texts that are in no
-- segment yet are read as they are. (With large values, a table WITHOUT ROWID is slow: SQLite reads the
-- whole of a row to compare its key.)
CREATE TABLE segments (
    shelf   BIGINT NOT NULL,
    first   BIGINT NOT NULL,                   -- 1, 1025, 2049 …
    last    BIGINT NOT NULL,                   -- the last number that it covers
    made    BIGINT NOT NULL,                   -- a fingerprint of what it holds, to know a copy again
    terms   BIGINT NOT NULL,                   -- how many different ones it has
    stale   BIGINT NOT NULL,                   -- 1: some of its texts are gone, so that it is to be made anew
    absent  TEXT NOT NULL,                     -- JSON list: numbers left out, since their turns had not ended
    columns BLOB NOT NULL,                     -- who said them, when, how long they are …, by column, compressed
    vectors BLOB NOT NULL,                     -- their static vectors, one after the other
    PRIMARY KEY (shelf, first)
);

-- In which texts of a segment a term is: two bytes each, 12 bits for the place and 4 for how often. The empty
-- term has the fingerprint of the segment instead.
CREATE TABLE postings (
    shelf  BIGINT NOT NULL,
    first  BIGINT NOT NULL,
    term   TEXT NOT NULL,
    places BLOB NOT NULL,
    PRIMARY KEY (shelf, first, term)
) WITHOUT ROWID;

-- Vectors of an encoder, which follow in the background.
CREATE TABLE embeddings (
    shelf    BIGINT NOT NULL,
    encoder  TEXT NOT NULL,                    -- which one made them; those of others cannot be compared
    first    BIGINT NOT NULL,                  -- of the segment
    made     BIGINT NOT NULL,                  -- a fingerprint of what it holds, to know a copy again
    numbers  BLOB NOT NULL,                    -- whose they are: numbers less first, two bytes each
    vectors  BLOB NOT NULL,                    -- one signed byte a dimension
    PRIMARY KEY (shelf, encoder, first)
);
