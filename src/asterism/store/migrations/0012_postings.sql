-- The word index is made anew with fewer rows: terms that begin with the same two letters stand together.
DROP TABLE postings;

-- In which texts of a segment terms are: two bytes each, 12 bits for the place and 4 for how often. The row of the
-- empty beginning has the fingerprint of the segment instead.
CREATE TABLE postings (
    shelf  BIGINT NOT NULL,
    first  BIGINT NOT NULL,
    term   TEXT NOT NULL,                      -- what they begin with
    places BLOB NOT NULL,
    PRIMARY KEY (shelf, first, term)
);

-- What is in no segment is read as it is, and put into one in the background.
DELETE FROM segments;
