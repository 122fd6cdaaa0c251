-- What is wrong with a home, so that people are told once for each cause.
CREATE TABLE alerts (
    constellation TEXT NOT NULL,
    cause         TEXT NOT NULL,               -- such as disk, or model:openai
    id            TEXT NOT NULL,               -- the key under which people are told
    text          TEXT NOT NULL,
    since         BIGINT NOT NULL,
    seen_at       BIGINT NOT NULL,             -- when it was last found to be so
    ended_at      BIGINT,
    told_at       BIGINT,                      -- when a channel has taken it
    attempts      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (constellation, cause)
) WITHOUT ROWID;
