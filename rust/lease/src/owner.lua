-- What the owner of a job asks of a limit, and makes of it. `src/server.rs` does the same, and a test
-- compares both.
--
-- KEYS: as `exchange.lua` has them.
-- ARGV: now in microseconds, or '' for the clock of the server
--       kind, and its three numbers, as tasks say it
--       whether a limit that is new begins without what it saves, 0 or 1
--       the numbers that it is to have from now on, or none
-- Returns what it is, how often that was changed, what was spent, what calls hold, and who has wanted
-- something of late; nothing where nobody has asked for it.

local ACTIVE = 1000000     -- as in `exchange.lua`

local limit, lately, wanting = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local kind, begins_empty = ARGV[2], ARGV[6] == '1'

local function text(value) return string.format('%.0f', value) end
local function get(name) return tonumber(redis.call('HGET', limit, name) or '0') end
local function set(name, value) redis.call('HSET', limit, name, text(value)) end
local function terms_of(at)
    return kind .. ' ' .. text(tonumber(ARGV[at])) .. ' ' .. text(tonumber(ARGV[at + 1])) .. ' '
        .. text(tonumber(ARGV[at + 2]))
end

local said = terms_of(3)
local known = redis.call('HGET', limit, 'terms')
local force = redis.call('HGET', limit, 'force') or known
if known and known ~= said and force ~= said then return { 'terms', known } end

local seen = now
now = math.max(now + get('ahead'), get('now'))
if ARGV[7] then
    if not known then
        redis.call('HSET', limit, 'terms', said)
        force = said
        if kind == 'rate' and begins_empty then
            local tat = now + math.floor(tonumber(ARGV[5]) * tonumber(ARGV[4]) / tonumber(ARGV[3]))
            set('tat', tat)
            set('base', tat)
        end
    end
    set('ahead', now - seen)
    set('now', now)
    local lives = 3600
    if kind == 'budget' then lives = 2592000 end
    redis.call('EXPIRE', limit, lives)
    if kind == 'rate' then
        local words = {}
        for word in string.gmatch(force, '%S+') do words[#words + 1] = word end
        local a, b, c = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
        local came, within, most = tonumber(words[2]), tonumber(words[3]), tonumber(words[4])
        -- What was saved stays, and no debt does: what was taken before has been allowed.
        local line = math.floor(most * within / came) - math.max(get('tat') - now, 0)
        local saved = math.floor(math.max(line, 0) * came / within)
        local tat = now + math.max(math.floor(c * b / a) - math.floor(saved * b / a), 0)
        set('tat', tat)
        set('base', tat)
        -- What was granted before a change does not come back after it.
        set('base_sum', get('sum'))
        redis.call('HDEL', limit, 'parts')
        for _, name in ipairs(redis.call('ZRANGE', lately, 0, -1)) do
            redis.call('HDEL', limit, 'l:' .. name)
        end
    end
    force = terms_of(7)
    redis.call('HSET', limit, 'force', force, 'version', text(get('version') + 1))
end

if not force then return {} end
local active = redis.call('ZCOUNT', wanting, text(math.max(now - ACTIVE, 0)), '+inf')
return { force, text(get('version')), text(get('spent')), text(get('flying')), text(active) }
