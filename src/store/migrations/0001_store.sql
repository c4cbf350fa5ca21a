-- Format 1. One text for both engines: only TEXT and BIGINT, no engine's own types or functions.

-- One row: the format, the policy's revision, how many audit records there are, and the key that seals `requestState`
-- (64 hex digits; empty until the first opening draws it).
CREATE TABLE meta (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    format BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    audits BIGINT NOT NULL,
    state_key TEXT NOT NULL
);
INSERT INTO meta (id, format, revision, audits, state_key) VALUES (1, 1, 0, 0, '');

-- Objects that the management API made, in the shape in which they are written. `id_key` is `id`, shortened where it is
-- too long for an index. (`revision`, `place`) is the commit that first wrote the object and its place in it.
CREATE TABLE objects (
    kind TEXT NOT NULL,
    organization TEXT NOT NULL,
    id_key TEXT NOT NULL,
    id TEXT NOT NULL,
    json TEXT NOT NULL,
    revision BIGINT NOT NULL,
    place BIGINT NOT NULL,
    PRIMARY KEY (kind, organization, id_key)
);

-- What is kept on top of objects that files own. Same shape.
CREATE TABLE overrides (
    kind TEXT NOT NULL,
    organization TEXT NOT NULL,
    id_key TEXT NOT NULL,
    id TEXT NOT NULL,
    json TEXT NOT NULL,
    revision BIGINT NOT NULL,
    place BIGINT NOT NULL,
    PRIMARY KEY (kind, organization, id_key)
);

-- What is known of each tool. Flags are 0 or 1, hashes 64 hex digits, `labels` a JSON array.
CREATE TABLE tools (
    organization TEXT NOT NULL,
    server TEXT NOT NULL,
    name_key TEXT NOT NULL,
    name TEXT NOT NULL,
    recorded BIGINT NOT NULL,
    current_sha256 TEXT,
    current_json TEXT,
    fault TEXT,
    pin TEXT,
    pin_seen BIGINT NOT NULL CHECK (pin_seen IN (0, 1)),
    changed BIGINT NOT NULL CHECK (changed IN (0, 1)),
    approved_sha256 TEXT,
    approved_json TEXT,
    status TEXT,
    class TEXT,
    labels TEXT,
    PRIMARY KEY (organization, server, name_key)
);

-- What discovery settled for each server.
CREATE TABLE discoveries (
    organization TEXT NOT NULL,
    server TEXT NOT NULL,
    protocol TEXT,
    PRIMARY KEY (organization, server)
);

-- Who changed what. `seq` has no gaps and grows in the order of the commits; `revision` is the commit's.
CREATE TABLE audit (
    seq BIGINT NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL,
    at TEXT NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    organization TEXT NOT NULL,
    target TEXT NOT NULL,
    before TEXT,
    after TEXT
);
