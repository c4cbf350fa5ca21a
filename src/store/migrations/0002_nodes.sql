-- Format 2. The nodes of a fleet, as each says of itself; `seen` is when, in milliseconds since 1970 by the store's own clock.
-- `revision` is the one that it serves, `rejected` one that it could not take (0: none) and `why`, `files` the SHA-256 of
-- its policy files.
CREATE TABLE nodes (
    node TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    revision BIGINT NOT NULL,
    rejected BIGINT NOT NULL,
    why TEXT NOT NULL,
    files TEXT NOT NULL,
    seen BIGINT NOT NULL
);
UPDATE meta SET format = 2 WHERE id = 1;
