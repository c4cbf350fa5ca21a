-- The token bucket that the nodes of a fleet share, and everybody else who knows its key. docs/fleet.md tells more.
--
-- KEYS[1]  toolgate:{key:<id>} or toolgate:{server:<organization>/<slug>}: a hash of `tokens` and `at` (microseconds
--          since 1970, by Redis' own clock). Absent: full.
-- ARGV     1 capacity, in tokens      2 unit over which the capacity is refilled, in milliseconds
--          3 want: tokens to take, as many of them as there are
--          4 back: tokens that were taken and not used                                 (from here on: 0 when left out)
--          5 owed: tokens that were used before they were taken; the bucket goes below zero for them
--          6 spent: tokens that were used while this was out of reach; the bucket goes down to zero for them
-- Returns  { tokens taken, whole tokens left, microseconds until there is one again }
local capacity, unit = tonumber(ARGV[1]), tonumber(ARGV[2]) * 1000
local want, back = tonumber(ARGV[3]), tonumber(ARGV[4] or 0)
local owed, spent = tonumber(ARGV[5] or 0), tonumber(ARGV[6] or 0)
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local held = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(held[1] or capacity), tonumber(held[2] or now)
tokens = math.min(capacity, tokens + math.max(0, now - at) * capacity / unit)
tokens = math.min(capacity, tokens + back)
tokens = math.max(math.min(tokens, 0), tokens - spent)
tokens = math.max(-capacity / 8, tokens - owed)
local taken = math.max(0, math.min(want, math.floor(tokens)))
tokens = tokens - taken
local wait = tokens < 1 and math.ceil((1 - tokens) * unit / capacity) or 0
redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', unit / 500))
return { taken, math.floor(tokens), wait }
