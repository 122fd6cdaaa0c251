-- Memory: people, blocks and their history, archives, documents, summaries, contexts, what is forgotten.
-- An audience is text such as public, owner, person:ID|room:CHANNEL:ROOM; a tier is text such as owner.

-- One row: what identifies this database among replicas.
CREATE TABLE replica (
    id   BIGINT PRIMARY KEY,                   -- always 1
    peer TEXT NOT NULL                         -- the Loro peer that edits made here belong to
);

CREATE TABLE persons (
    constellation TEXT NOT NULL,
    id            TEXT NOT NULL,               -- person_…, or owner
    name          TEXT NOT NULL,
    tier          TEXT NOT NULL,
    roles         TEXT NOT NULL,               -- JSON list
    created_at    BIGINT NOT NULL,
    PRIMARY KEY (constellation, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX persons_name ON persons (constellation, name);

CREATE TABLE accounts (
    constellation TEXT NOT NULL,
    channel       TEXT NOT NULL,
    sender        TEXT NOT NULL,
    person_id     TEXT NOT NULL,
    PRIMARY KEY (constellation, channel, sender)
) WITHOUT ROWID;
CREATE INDEX accounts_person ON accounts (constellation, person_id);

CREATE TABLE room_members (
    constellation TEXT NOT NULL,
    room          TEXT NOT NULL,               -- channel:room
    person_id     TEXT NOT NULL,
    since         BIGINT NOT NULL,
    PRIMARY KEY (constellation, room, person_id)
) WITHOUT ROWID;
CREATE INDEX room_members_person ON room_members (constellation, person_id);

-- Who is present: JSON {"persons": [ids], "room": "channel:room"}; NULL: the owner alone.
ALTER TABLE inbox ADD COLUMN company TEXT;
ALTER TABLE schedules ADD COLUMN company TEXT;
-- Who may hear what was said in a turn; NULL: the owner.
ALTER TABLE turns ADD COLUMN audience TEXT;
-- The least trusted content that was read in it; NULL: the owner's.
ALTER TABLE turns ADD COLUMN tier TEXT;
-- Counts changes of what the agent may see of memory.
ALTER TABLE agents ADD COLUMN memory BIGINT NOT NULL DEFAULT 0;

CREATE TABLE blocks (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    owner_id      TEXT NOT NULL,               -- an agent; empty: the constellation
    label         TEXT NOT NULL,
    type          TEXT NOT NULL,
    description   TEXT NOT NULL,
    schema        TEXT NOT NULL,               -- JSON
    max_chars     BIGINT NOT NULL,
    permission    TEXT NOT NULL,
    audience      TEXT NOT NULL,
    pinned        BIGINT NOT NULL,
    version       BIGINT NOT NULL,             -- counts edits
    text          TEXT NOT NULL,               -- all lines
    lines         TEXT NOT NULL,               -- JSON: by runs of lines, who may hear them, their edits
    snapshot      BLOB NOT NULL,               -- the Loro document as it is now, without its history
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    retired_at    BIGINT
);
CREATE UNIQUE INDEX blocks_label ON blocks (constellation, owner_id, label) WHERE retired_at IS NULL;

CREATE TABLE block_agents (
    block_id   TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    permission TEXT NOT NULL,
    since      BIGINT NOT NULL,
    PRIMARY KEY (block_id, agent_id)
) WITHOUT ROWID;
CREATE INDEX block_agents_agent ON block_agents (agent_id);

-- The history of a block: the latest edits one by one, older ones folded into eras.
CREATE TABLE block_edits (
    block_id  TEXT NOT NULL,
    number    BIGINT NOT NULL,
    kind      TEXT NOT NULL,
    author    TEXT NOT NULL,
    turn_id   TEXT,
    reason    TEXT NOT NULL,
    source    TEXT NOT NULL,                   -- JSON: origins, audience, tier
    undoes    BIGINT,
    undone_by BIGINT,
    version   BLOB NOT NULL,                   -- the Loro frontiers after it
    ops       BLOB NOT NULL,                   -- the Loro update
    at        BIGINT NOT NULL,
    PRIMARY KEY (block_id, number)
) WITHOUT ROWID;
CREATE INDEX block_edits_turn ON block_edits (turn_id);

CREATE TABLE block_eras (
    block_id TEXT NOT NULL,
    first    BIGINT NOT NULL,
    last     BIGINT NOT NULL,
    start    BLOB NOT NULL,                    -- the document before its first edit
    ops      BLOB NOT NULL,                    -- one Loro update for all of its edits
    edits    BLOB NOT NULL,                    -- what block_edits says of them, compressed
    since    BIGINT NOT NULL,                  -- when its first edit was made
    PRIMARY KEY (block_id, first)
) WITHOUT ROWID;

-- Folders of documents.
CREATE TABLE sources (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    name          TEXT NOT NULL,
    path          TEXT NOT NULL,
    options       TEXT NOT NULL,               -- JSON
    audience      TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    synced_at     BIGINT
);
CREATE UNIQUE INDEX sources_name ON sources (constellation, name);

CREATE TABLE source_agents (
    source_id TEXT NOT NULL,
    agent_id  TEXT NOT NULL,
    since     BIGINT NOT NULL,
    PRIMARY KEY (source_id, agent_id)
) WITHOUT ROWID;
CREATE INDEX source_agents_agent ON source_agents (agent_id);

CREATE TABLE documents (
    source_id TEXT NOT NULL,
    path      TEXT NOT NULL,                   -- within the source
    digest    TEXT NOT NULL,                   -- SHA-256 of the file that was read
    size      BIGINT NOT NULL,
    modified  BIGINT NOT NULL,
    state     TEXT NOT NULL,                   -- reading, read, refused
    passages  BIGINT NOT NULL,                 -- how many were stored so far
    error     TEXT,
    read_at   BIGINT,
    PRIMARY KEY (source_id, path)
) WITHOUT ROWID;

CREATE TABLE passages (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    archive_id    TEXT NOT NULL,               -- an agent or a source
    document      TEXT,                        -- its path in the source
    place         BIGINT,                      -- its number in the document
    text          TEXT NOT NULL,
    tags          TEXT NOT NULL,               -- JSON list
    metadata      TEXT NOT NULL,               -- JSON object
    origins       TEXT NOT NULL,               -- JSON list
    audience      TEXT NOT NULL,
    tier          TEXT NOT NULL,
    author        TEXT NOT NULL,
    turn_id       TEXT,
    known_from    BIGINT NOT NULL,
    true_from     BIGINT,
    superseded_by TEXT,
    superseded_at BIGINT,
    retracted_at  BIGINT,
    digest        TEXT NOT NULL,               -- of its words, to know the same again
    vector        BLOB
);
CREATE INDEX passages_archive ON passages (archive_id, known_from, id);
CREATE INDEX passages_held ON passages (archive_id, audience, known_from, id)
    WHERE superseded_at IS NULL AND retracted_at IS NULL;
CREATE INDEX passages_document ON passages (archive_id, document, place) WHERE document IS NOT NULL;
CREATE INDEX passages_digest ON passages (archive_id, digest);
CREATE INDEX passages_turn ON passages (turn_id) WHERE turn_id IS NOT NULL;

-- What was done to passages after they were inserted, with what they were before.
CREATE TABLE passage_edits (
    passage_id TEXT NOT NULL,
    number     BIGINT NOT NULL,
    kind       TEXT NOT NULL,                  -- append, retract, supersede, tag, merge, revert
    author     TEXT NOT NULL,
    turn_id    TEXT,
    reason     TEXT NOT NULL,
    before     TEXT NOT NULL,                  -- JSON: the columns that it changed, as they were
    at         BIGINT NOT NULL,
    PRIMARY KEY (passage_id, number)
) WITHOUT ROWID;
CREATE INDEX passage_edits_turn ON passage_edits (turn_id) WHERE turn_id IS NOT NULL;

-- A summary stands for a range of an agent's journal, of which the originals stay.
CREATE TABLE summaries (
    id        TEXT PRIMARY KEY,
    agent_id  TEXT NOT NULL,
    company   TEXT NOT NULL,                   -- the key of those it was made for
    audience  TEXT NOT NULL,
    tier      TEXT NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq  BIGINT NOT NULL,
    strategy  TEXT NOT NULL,
    text      TEXT NOT NULL,
    kept      TEXT NOT NULL,                   -- JSON list of seqs in the range that stay in full
    messages  BIGINT NOT NULL,                 -- how many it stands for
    tokens    BIGINT NOT NULL,                 -- about how many those had
    made_by   TEXT NOT NULL,                   -- rule, or vendor:name
    at        BIGINT NOT NULL
);
CREATE INDEX summaries_agent ON summaries (agent_id, company, last_seq);

-- An epoch: how long a context keeps the same prefix.
CREATE TABLE epochs (
    agent_id  TEXT NOT NULL,
    number    BIGINT NOT NULL,
    company   TEXT NOT NULL,
    first_seq BIGINT NOT NULL,                 -- the tail begins here
    summary   TEXT,                            -- what stands for the past before it
    sections  TEXT NOT NULL,                   -- JSON: what the prefix is made of, and why
    why       TEXT NOT NULL,                   -- why it was compiled anew
    at        BIGINT NOT NULL,
    PRIMARY KEY (agent_id, number)
) WITHOUT ROWID;
CREATE INDEX epochs_company ON epochs (agent_id, company, number);

-- What was forgotten, so that it stays forgotten when an older copy comes back.
CREATE TABLE tombstones (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    by_whom       TEXT NOT NULL,
    reason        TEXT NOT NULL,
    marks         TEXT NOT NULL,               -- JSON: ids, and fingerprints of texts
    receipt       TEXT NOT NULL,               -- JSON: where it was found, and how often
    at            BIGINT NOT NULL
);
