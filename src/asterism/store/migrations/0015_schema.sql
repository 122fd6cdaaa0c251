-- Every table, by topic: agents and their turns, what goes out, tools, spending, people, memory, search, events, secrets.
-- Common subset of SQLite and PostgreSQL; the PostgreSQL driver reads BLOB as BYTEA and drops
-- WITHOUT ROWID. Times are milliseconds since 1970, UTC.
-- An audience is text such as public, owner, person:ID|room:CHANNEL:ROOM; a trust is text such as owner.

-- Agents and their turns: what came in, the journal, what models are shown of it.

CREATE TABLE agents (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    name          TEXT NOT NULL,
    model         TEXT NOT NULL,
    system        TEXT NOT NULL,
    tools         TEXT,                        -- JSON list of names; NULL: every tool
    rules         TEXT,                        -- JSON list of rules for tools; NULL: none
    limits        TEXT NOT NULL,               -- JSON
    version       BIGINT NOT NULL DEFAULT 1,   -- counts edits
    memory        BIGINT NOT NULL DEFAULT 0,   -- counts changes of what the agent may see of memory
    arrivals      BIGINT NOT NULL DEFAULT 0,   -- counts what was put in the inbox
    length        BIGINT NOT NULL DEFAULT 0,   -- counts entries of the journal
    fence         BIGINT NOT NULL DEFAULT 0,   -- counts claims of the lane
    created_at    BIGINT NOT NULL,
    deleted_at    BIGINT
);
CREATE UNIQUE INDEX agents_name ON agents (constellation, name) WHERE deleted_at IS NULL;

-- Which external ids were taken in: a message is accepted once.
CREATE TABLE accepted (
    constellation TEXT NOT NULL,
    channel       TEXT NOT NULL,
    external_id   TEXT NOT NULL,
    message_id    TEXT NOT NULL,
    agent_id      TEXT NOT NULL,
    PRIMARY KEY (constellation, channel, external_id)
) WITHOUT ROWID;

-- What waits for its turn. The transaction that opens the turn takes the row out.
CREATE TABLE inbox (
    agent_id TEXT NOT NULL,
    arrival  BIGINT NOT NULL,
    id       TEXT NOT NULL,
    kind     TEXT NOT NULL,
    channel  TEXT NOT NULL,
    sender   TEXT,
    participants  TEXT,                             -- JSON {"persons": [ids], "room": "channel:room"}: who is present; NULL: the owner
    reply_to TEXT,
    body     BLOB NOT NULL,
    schema   TEXT,                             -- the JSON schema that the answer must fulfil
    at       BIGINT NOT NULL,
    turn_id  TEXT,                             -- of a decision, the turn that it resumes
    stopped  TEXT,                             -- why its turn does not begin; NULL: it does
    PRIMARY KEY (agent_id, arrival)
) WITHOUT ROWID;

CREATE TABLE turns (
    id            TEXT PRIMARY KEY,
    agent_id      TEXT NOT NULL,
    state         TEXT NOT NULL,
    channel       TEXT NOT NULL,
    reply_to      TEXT,
    audience      TEXT,                        -- who may hear what was said in it; NULL: the owner
    trust          TEXT,                        -- the least trusted content that was read in it; NULL: the owner's
    first_seq     BIGINT NOT NULL,
    last_seq      BIGINT NOT NULL,
    arrived_at    BIGINT,                      -- when its message came in; NULL: not known
    opened_at     BIGINT NOT NULL,             -- when its work began
    ended_at      BIGINT,
    tokens_in     BIGINT NOT NULL DEFAULT 0,
    tokens_out    BIGINT NOT NULL DEFAULT 0,
    tokens_cached BIGINT NOT NULL DEFAULT 0,
    error         TEXT,
    stopping      TEXT                         -- why it does not go on; NULL: it does
) WITHOUT ROWID;
CREATE INDEX turns_agent ON turns (agent_id, first_seq);
CREATE INDEX turns_open ON turns (agent_id) WHERE state = 'open';

-- The journal: one gapless sequence per agent, only ever appended to.
CREATE TABLE entries (
    agent_id TEXT NOT NULL,
    seq      BIGINT NOT NULL,
    turn_id  TEXT NOT NULL,
    kind     TEXT NOT NULL,
    key      TEXT NOT NULL,
    body     BLOB NOT NULL,
    meta     TEXT,
    at       BIGINT NOT NULL,
    PRIMARY KEY (agent_id, seq)
) WITHOUT ROWID;

-- Images and other large contents, by their SHA-256: the same bytes are kept once.
CREATE TABLE blobs (
    id         TEXT PRIMARY KEY,
    type       TEXT NOT NULL,
    body       BLOB NOT NULL,
    created_at BIGINT NOT NULL
);

-- An epoch: how long a context keeps the same prefix.
CREATE TABLE epochs (
    agent_id  TEXT NOT NULL,
    number    BIGINT NOT NULL,
    participants   TEXT NOT NULL,
    first_seq BIGINT NOT NULL,                 -- the tail begins here
    summary   TEXT,                            -- what stands for the past before it
    sections  TEXT NOT NULL,                   -- JSON: what the prefix is made of, and why
    why       TEXT NOT NULL,                   -- why it was compiled anew
    at        BIGINT NOT NULL,
    PRIMARY KEY (agent_id, number)
) WITHOUT ROWID;
CREATE INDEX epochs_participants ON epochs (agent_id, participants, number);

-- A summary stands for a range of an agent's journal, of which the originals stay.
CREATE TABLE summaries (
    id        TEXT PRIMARY KEY,
    agent_id  TEXT NOT NULL,
    participants   TEXT NOT NULL,                   -- the key of those it was made for
    audience  TEXT NOT NULL,
    trust      TEXT NOT NULL,
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
CREATE INDEX summaries_agent ON summaries (agent_id, participants, last_seq);

-- What goes out, what is planned, what an owner must know.

CREATE TABLE outbox (
    key        TEXT PRIMARY KEY,
    agent_id   TEXT NOT NULL,
    turn_id    TEXT NOT NULL,
    channel    TEXT NOT NULL,
    target     TEXT NOT NULL,
    number     BIGINT NOT NULL,                -- its place among what waits for this target
    body       TEXT NOT NULL,
    state      TEXT NOT NULL,
    attempts   BIGINT NOT NULL DEFAULT 0,
    next_at    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    sent_at    BIGINT,
    error      TEXT,
    claimed_by BIGINT                          -- the worker that tries it now; NULL: nobody, or the only process
);
CREATE INDEX outbox_open ON outbox (channel, target, number, key) WHERE state <> 'sent';

CREATE TABLE schedules (
    id         TEXT PRIMARY KEY,
    agent_id   TEXT NOT NULL,
    text       TEXT NOT NULL,
    due_at     BIGINT NOT NULL,
    cron       TEXT,                           -- NULL: once
    channel    TEXT,
    reply_to   TEXT,
    participants    TEXT,                           -- as in the inbox
    created_at BIGINT NOT NULL
);
CREATE INDEX schedules_due ON schedules (due_at);

-- What an owner must be told.
CREATE TABLE notices (
    id       TEXT PRIMARY KEY,
    agent_id TEXT NOT NULL,
    turn_id  TEXT,
    kind     TEXT NOT NULL,
    text     TEXT NOT NULL,
    at       BIGINT NOT NULL,
    seen_at  BIGINT
);
CREATE INDEX notices_unseen ON notices (at) WHERE seen_at IS NULL;

-- Halts: while one is not lifted, no agent of its constellation takes a turn.
CREATE TABLE halts (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    agent_id      TEXT,                        -- who called for it; NULL: the owner
    turn_id       TEXT,
    severity      TEXT NOT NULL,
    reason        TEXT NOT NULL,
    at            BIGINT NOT NULL,
    lifted_at     BIGINT,
    lifted_by     TEXT
);
CREATE INDEX halts_open ON halts (constellation, at) WHERE lifted_at IS NULL;

-- Tools: what people are asked before a call, what was granted for longer, what limits count, and registered ones.

-- The exact call, who may answer, where and when they are asked, and the answer.
CREATE TABLE approvals (
    id           TEXT PRIMARY KEY,
    agent_id     TEXT NOT NULL,
    turn_id      TEXT NOT NULL,
    key          TEXT NOT NULL,
    question     TEXT NOT NULL,
    asked_at     BIGINT NOT NULL,
    tool         TEXT NOT NULL DEFAULT '',
    definition   TEXT NOT NULL DEFAULT '',     -- digest of the tool when the question was asked; '': not known
    arguments    TEXT NOT NULL DEFAULT '',     -- JSON as the model wrote it
    effects        TEXT NOT NULL DEFAULT '',     -- JSON list: what the call does
    reason       TEXT NOT NULL DEFAULT '',
    reviewers    TEXT NOT NULL DEFAULT '["owner"]',
    rounds       BIGINT NOT NULL DEFAULT 0,    -- how often it was announced
    announced    TEXT NOT NULL DEFAULT '{}',   -- JSON: channel:address to the latest round there
    announced_at BIGINT,
    next_at      BIGINT,                       -- when to look at it again; NULL: never
    expires_at   BIGINT,
    approved     BIGINT,
    edited       TEXT,                         -- JSON: the arguments as a person changed them
    note         TEXT,
    decided_by   TEXT,
    decided_at   BIGINT,
    place        TEXT,                         -- channel:address where it was answered
    grant_id     TEXT
);
CREATE INDEX approvals_open ON approvals (asked_at) WHERE decided_at IS NULL;
CREATE INDEX approvals_due ON approvals (next_at) WHERE decided_at IS NULL AND next_at IS NOT NULL;
CREATE INDEX approvals_turn ON approvals (turn_id);

-- Which calls run without being asked about again.
CREATE TABLE grants (
    id            TEXT PRIMARY KEY,
    constellation TEXT NOT NULL,
    agent_id      TEXT,                        -- NULL: every agent's calls
    tool          TEXT NOT NULL,               -- a name, or a glob
    definition    TEXT,                        -- digest of the tool; NULL: whatever has the name
    pattern       TEXT NOT NULL,               -- JSON: a glob for each argument that matters
    arguments     TEXT,                        -- JSON: the only arguments; NULL: any
    effects         TEXT,                        -- JSON: what calls may do at most; NULL: anything
    amount        DOUBLE PRECISION,            -- up to which amount each
    per_day       BIGINT,                      -- how many calls in 24 hours
    uses          BIGINT,                      -- how many calls are left; NULL: any number
    turn_id       TEXT,
    until         BIGINT,
    given_by      TEXT NOT NULL,
    given_at      BIGINT NOT NULL,
    approval_id   TEXT,
    revoked_at    BIGINT
);
CREATE INDEX grants_live ON grants (constellation, agent_id) WHERE revoked_at IS NULL;

-- Calls that a policy with a quota has let pass.
CREATE TABLE quota_uses (
    agent_id TEXT NOT NULL,
    policy   TEXT NOT NULL,
    at       BIGINT NOT NULL,
    amount   DOUBLE PRECISION NOT NULL
);
CREATE INDEX quota_uses_policy ON quota_uses (agent_id, policy, at);

-- When tools last succeeded that rules of time are for.
CREATE TABLE tool_runs (
    agent_id TEXT NOT NULL,
    tool     TEXT NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (agent_id, tool)
);

-- Tools that were registered over the API or the command line: each change is a version of its own.
CREATE TABLE registered_tools (
    constellation TEXT NOT NULL,
    name          TEXT NOT NULL,
    version       BIGINT NOT NULL,
    spec          TEXT NOT NULL,               -- JSON: description, schema, source or address, effects
    made_by       TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    removed_at    BIGINT,                      -- of the newest version: offered no more
    PRIMARY KEY (constellation, name, version)
);

-- Spending: one row for each call that costs money, and running totals that caps are held to.
-- Amounts are nano-dollars. Days and months are those of the configured time zone.

CREATE TABLE charges (
    id             TEXT PRIMARY KEY,
    constellation  TEXT NOT NULL,
    agent_id       TEXT NOT NULL,
    person         TEXT,                       -- channel:sender
    party          TEXT,                       -- the group that the agent spoke in
    turn_id        TEXT NOT NULL,
    key            TEXT NOT NULL,              -- the step that asked
    model          TEXT NOT NULL,
    day            TEXT NOT NULL,
    month          TEXT NOT NULL,
    state          TEXT NOT NULL,              -- reserved, settled, presumed
    amount         BIGINT NOT NULL,            -- the worst case while reserved or presumed
    tokens_in      BIGINT NOT NULL DEFAULT 0,
    tokens_out     BIGINT NOT NULL DEFAULT 0,
    tokens_cached  BIGINT NOT NULL DEFAULT 0,
    tokens_written BIGINT NOT NULL DEFAULT 0,
    at             BIGINT NOT NULL,
    until          BIGINT NOT NULL             -- when its turn has ended for sure
) WITHOUT ROWID;
CREATE INDEX charges_open ON charges (until) WHERE state = 'reserved';
CREATE INDEX charges_turn ON charges (turn_id);
CREATE INDEX charges_day ON charges (constellation, day);

CREATE TABLE totals (
    constellation TEXT NOT NULL,
    period        TEXT NOT NULL,               -- 2026-11-16 or 2026-11
    scope         TEXT NOT NULL,               -- all, agent:ID, person:CHANNEL:SENDER, group:NAME
    spent         BIGINT NOT NULL,
    presumed      BIGINT NOT NULL,
    reserved      BIGINT NOT NULL,
    warned        BIGINT NOT NULL DEFAULT 0,   -- the cap whose warning was given
    PRIMARY KEY (constellation, period, scope)
) WITHOUT ROWID;

-- People: who they are, where they write from, and which rooms they are in.

CREATE TABLE persons (
    constellation TEXT NOT NULL,
    id            TEXT NOT NULL,               -- person_…, or owner
    name          TEXT NOT NULL,
    trust          TEXT NOT NULL,
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

-- Memory: blocks and their history, folders of documents, archives of passages, what is forgotten.

-- One row: what identifies this database among replicas.
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
    content       TEXT NOT NULL,               -- JSON: by part, what the text is made of; empty: the text
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

-- The history of a block: the latest edits one by one, older ones squashed into eras.
CREATE TABLE block_edits (
    block_id  TEXT NOT NULL,
    number    BIGINT NOT NULL,
    kind      TEXT NOT NULL,
    author    TEXT NOT NULL,
    turn_id   TEXT,
    reason    TEXT NOT NULL,
    source    TEXT NOT NULL,                   -- JSON: origins, audience, trust
    undoes    BIGINT,
    undone_by BIGINT,
    change    TEXT NOT NULL,                   -- JSON: by part, what it made of the content
    at        BIGINT NOT NULL,
    PRIMARY KEY (block_id, number)
) WITHOUT ROWID;
CREATE INDEX block_edits_turn ON block_edits (turn_id);

CREATE TABLE block_eras (
    block_id TEXT NOT NULL,
    first    BIGINT NOT NULL,
    last     BIGINT NOT NULL,
    content  BLOB NOT NULL,                    -- JSON, compressed: the content before them, and each change
    edits    BLOB NOT NULL,                    -- JSON, compressed: what else block_edits says of them
    since    BIGINT NOT NULL,                  -- when its first edit was made
    PRIMARY KEY (block_id, first)
) WITHOUT ROWID;

-- The Loro documents of blocks that were exported to, or merged with, other replicas.
CREATE TABLE block_replicas (
    block_id TEXT PRIMARY KEY,
    version  BIGINT NOT NULL,                  -- the version of the block that it says
    document BLOB NOT NULL
);

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
    trust          TEXT NOT NULL,
    author        TEXT NOT NULL,
    turn_id       TEXT,
    known_from    BIGINT NOT NULL,
    true_from     BIGINT,
    superseded_by TEXT,
    superseded_at BIGINT,
    retracted_at  BIGINT,
    digest        TEXT NOT NULL,               -- of its words, to know the same again
    vector        BLOB,
    number        BIGINT                       -- its number in the index; a new one whenever its text changes; NULL: staged
);
CREATE INDEX passages_archive ON passages (archive_id, known_from, id);
CREATE INDEX passages_held ON passages (archive_id, audience, known_from, id)
    WHERE superseded_at IS NULL AND retracted_at IS NULL;
CREATE INDEX passages_document ON passages (archive_id, document, place) WHERE document IS NOT NULL;
CREATE INDEX passages_digest ON passages (archive_id, digest);
CREATE INDEX passages_turn ON passages (turn_id) WHERE turn_id IS NOT NULL;
CREATE UNIQUE INDEX passages_number ON passages (archive_id, number);

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

-- Search: what texts are found by. All of it is made of texts that are stored elsewhere, and can be made anew.
-- An index covers the texts of one owner: the journal of an agent, or an archive (an agent's own, or a source's).
-- Its texts are numbered: entries of a journal by their seq, passages by their number in the archive.

CREATE TABLE search_indexes (
    id       BIGINT PRIMARY KEY,               -- short, since every posting carries it
    kind     TEXT NOT NULL,                    -- journal or archive
    owner_id TEXT NOT NULL,                    -- an agent or a source
    removals BIGINT NOT NULL                   -- counts how often something was removed from it
);
CREATE UNIQUE INDEX search_indexes_owner ON search_indexes (owner_id, kind);

-- What is known of the texts with the numbers first to last, at most 1,024 of them; texts that are in no
-- segment are read as they are, and put into one in the background. (With large values, a table WITHOUT ROWID
-- is slow: SQLite reads the whole of a row to compare its key.)
CREATE TABLE segments (
    index_id     BIGINT NOT NULL,
    first        BIGINT NOT NULL,              -- 1, 1025, 2049 …
    last         BIGINT NOT NULL,              -- the last number that it covers
    fingerprint  BIGINT NOT NULL,              -- a fingerprint of what it holds, to know a copy again
    terms        BIGINT NOT NULL,              -- how many different ones it has
    stale        BIGINT NOT NULL,              -- 1: some of its texts are gone, so that it is to be made anew
    open_numbers TEXT NOT NULL,                -- JSON list: numbers left out, since their turns had not ended
    columns      BLOB NOT NULL,                -- who said them, when, how long they are …, by column, compressed
    vectors      BLOB NOT NULL,                -- their static vectors, one after the other
    PRIMARY KEY (index_id, first)
);

-- In which texts of a segment terms are: two bytes each, 12 bits for the place and 4 for how often. Terms that begin
-- with the same two letters stand together. The row of the empty beginning has the fingerprint of the segment instead.
CREATE TABLE postings (
    index_id     BIGINT NOT NULL,
    first        BIGINT NOT NULL,
    prefix       TEXT NOT NULL,                -- what they begin with
    codes        BLOB NOT NULL,
    PRIMARY KEY (index_id, first, prefix)
);

-- Vectors of an encoder, which follow in the background.
CREATE TABLE embeddings (
    index_id     BIGINT NOT NULL,
    encoder      TEXT NOT NULL,                -- which one made them; those of others cannot be compared
    first        BIGINT NOT NULL,              -- of the segment
    fingerprint  BIGINT NOT NULL,              -- a fingerprint of what it holds, to know a copy again
    numbers      BLOB NOT NULL,                -- whose they are: numbers less first, two bytes each
    vectors      BLOB NOT NULL,                -- one signed byte a dimension
    PRIMARY KEY (index_id, encoder, first)
);

-- Events: what was done, in chains of hashes.

CREATE TABLE events (
    chain    TEXT NOT NULL,                    -- an agent's id, or home:CONSTELLATION
    number   BIGINT NOT NULL,                  -- 1, 2, 3 … without a gap
    at       BIGINT NOT NULL,
    kind     TEXT NOT NULL,
    actor    TEXT NOT NULL,
    agent_id TEXT,                             -- whom it is about
    turn_id  TEXT,
    body     BLOB,                             -- JSON; NULL: forgotten
    salt     BLOB,                             -- NULL: forgotten
    digest   BLOB NOT NULL,                    -- SHA-256 of salt and body
    hash     BLOB NOT NULL,                    -- SHA-256 of the hash before, the digest and everything else
    PRIMARY KEY (chain, number)
) WITHOUT ROWID;
CREATE INDEX events_at ON events (at);

-- The head of each chain, so that one that was cut off is noticed.
CREATE TABLE chains (
    id     TEXT PRIMARY KEY,
    length BIGINT NOT NULL,
    hash   BLOB NOT NULL
) WITHOUT ROWID;

-- Which length of each chain was last written into the home's. Apart, since heads are locked by those who append.
CREATE TABLE anchors (
    chain  TEXT PRIMARY KEY,
    length BIGINT NOT NULL
) WITHOUT ROWID;

-- Secrets: keys of others, encrypted.

CREATE TABLE data_keys (
    id         TEXT PRIMARY KEY,
    wrapped    BLOB NOT NULL,                  -- the key, encrypted with the master key
    nonce      BLOB NOT NULL,
    master     TEXT NOT NULL,                  -- a fingerprint of the master key
    created_at BIGINT NOT NULL
);

CREATE TABLE secrets (
    constellation TEXT NOT NULL,
    name          TEXT NOT NULL,
    ciphertext    BLOB NOT NULL,
    nonce         BLOB NOT NULL,
    key_id        TEXT NOT NULL,               -- of data_keys
    created_at    BIGINT NOT NULL,
    used_at       BIGINT,
    PRIMARY KEY (constellation, name)
);
