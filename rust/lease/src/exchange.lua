-- One exchange of a worker with a limit: what it has used, and what it wants. `src/server.rs` does the
-- same, number by number, and a test compares both.
--
-- KEYS: the limit; when workers have spoken; when they have wanted something. All in one slot, by a hash
-- tag.
-- ARGV: now in microseconds, or '' for the clock of the server
--       kind, and its three numbers
--       worker, number of its exchange
--       want, least, charged, cost, since, back, left
--       whether a limit that is new begins without what it saves, 0 or 1
--       which change of the limit the worker knows
-- Returns leases, one behind the other: what was granted, from when and until when, in microseconds from
-- now, and all that was granted so far, as `since` says it; or when to ask again, and why nothing was
-- granted; or what the limit has become, to a worker that does not know it yet; or that the worker is not
-- known, which holds something.
-- All numbers are whole and below 2^53, so that doubles hold them.

local HOLD = 30000000      -- silent for so long, a worker has nothing any more
local LASTS = 25000000     -- so long it may begin calls with what does not refill
local LEASE = 200000       -- and so long with permits of a rate, at most
local LONGEST = 400000     -- and so long one that gets the processor less often than that
local SHORTEST = 10000     -- and at least
local MOST_LEASES = 16     -- in so many parts at most, if the limit saves too little for one
local QUANTUM = 200000     -- what all workers get at once of a rate, in time
local HORIZON = 1000000    -- how far ahead a rate is promised
local ACTIVE = 1000000     -- who has wanted something since then shares it
local AGAIN = 100000       -- when to ask again for what no time brings
local MOST = 2 ^ 53        -- the greatest number that is said
local PARTS = 32           -- so many parts of a line are remembered, of what was granted last
local GRAINS = 16          -- the leases of a part end within what the limit saves, divided by this

local limit, lately, wanting = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local kind, a, b, c = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local worker, number = ARGV[6], ARGV[7]
local want, least = tonumber(ARGV[8]), math.max(tonumber(ARGV[9]), 1)
local charged, cost, since = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local back, left = tonumber(ARGV[13]), tonumber(ARGV[14])
local begins_empty = ARGV[15] == '1'
local knows = ARGV[16]

local function text(value) return string.format('%.0f', value) end
local function get(name) return tonumber(redis.call('HGET', limit, name) or '0') end
local function set(name, value) redis.call('HSET', limit, name, text(value)) end

-- Rows often cost the same, and what is too little for one would be lost.
local function whole(amount)
    if amount < least then return amount end
    return amount - amount % least
end

-- The same name with other terms is another limit.
local terms = kind .. ' ' .. text(a) .. ' ' .. text(b) .. ' ' .. text(c)
local known = redis.call('HGET', limit, 'terms')
-- What its owner has made of it.
local force = redis.call('HGET', limit, 'force')
if known and known ~= terms and force ~= terms then return { 'terms', known } end
local version = redis.call('HGET', limit, 'version') or '0'
local is_new = version ~= knows
if force then
    local words = {}
    for word in string.gmatch(force, '%S+') do words[#words + 1] = word end
    a, b, c = tonumber(words[2]), tonumber(words[3]), tonumber(words[4])
end
-- Where the clock of the server was set back, time goes on from where it was.
local seen = now
now = math.max(now + get('ahead'), get('now'))
set('ahead', now - seen)
set('now', now)
if not known then
    redis.call('HSET', limit, 'terms', terms)
    if kind == 'rate' and begins_empty then set('base', now + math.floor(c * b / a)) end
end
local lives = 3600
if kind == 'budget' then lives = 2592000 end
redis.call('EXPIRE', limit, lives)

-- An answer that was lost is given again. What was said over a connection that is gone may come after
-- what followed it.
local own_number = 'n:' .. worker
local own_answer = 'a:' .. worker
local told = tonumber(redis.call('HGET', limit, own_number) or '-1')
if told > tonumber(number) then return { 'noted' } end
if told == tonumber(number) then
    local words = {}
    for word in string.gmatch(redis.call('HGET', limit, own_answer), '%S+') do
        words[#words + 1] = word
    end
    return words
end

-- What a silent worker was granted is over for calls at a time, and spent of a budget: nobody can say
-- what it has begun.
local function forget(name)
    if kind ~= 'rate' then
        local own = get('f:' .. name)
        set('flying', get('flying') - own)
        if kind == 'budget' then set('spent', math.min(get('spent') + own, MOST)) end
    end
    redis.call('HDEL', limit, 'f:' .. name, 'l:' .. name, 'n:' .. name, 'a:' .. name)
    redis.call('ZREM', lately, name)
    redis.call('ZREM', wanting, name)
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', lately, '-inf', '(' .. text(now - HOLD))) do
    forget(name)
end
-- What a worker holds that is not known is not counted: others may have it.
if kind ~= 'rate' and tonumber(number) > 1 and not redis.call('HGET', limit, own_number) then
    return { 'lost' }
end
local gap = now - tonumber(redis.call('ZSCORE', lately, worker) or now)
redis.call('ZADD', lately, text(now), worker)
redis.call('EXPIRE', lately, lives)
-- Who does not know what the limit has become learns that first.
if is_new then want = 0 end
if want > 0 then
    redis.call('ZADD', wanting, text(now), worker)
    redis.call('EXPIRE', wanting, lives)
end
local active = redis.call('ZCOUNT', wanting, text(now - ACTIVE), '+inf')

local answer

if kind == 'rate' then
    -- `a` permits in `b` microseconds, `c` of them at once.
    local burst = math.floor(c * b / a)
    -- A lease that ends at `till` takes the line to `max(tat, till)` and what it is. If some of that turns
    -- out to be nothing, what came behind it is counted again. Of a part: the sum behind its last
    -- lease; when its first and its last one end; what they are; where they took a line of nothing,
    -- before some of it came back.
    local tat, base, base_sum, sum, parts = 0, get('base'), get('base_sum'), get('sum'), {}
    local words = redis.call('HGET', limit, 'parts') or ''
    for all in string.gmatch(words, '%d+ %d+ %d+ %d+ %d+') do
        local part = {}
        for each in string.gmatch(all, '%d+') do part[#part + 1] = tonumber(each) end
        parts[#parts + 1] = part
    end
    -- Where a line of nothing is behind a part. Nobody knows which of its leases the rest is of: perhaps
    -- all of the last one.
    local function least_of(part) return math.min(part[5], part[3] + part[4]) end
    local function behind(part, line) return math.max(least_of(part), line + part[4]) end
    local function count()
        while parts[1] do
            local till, following = behind(parts[1], base), parts[2]
            -- What ends before the next one counts does not matter any more.
            local is_over = following and till + following[4] <= least_of(following)
            if not is_over and #parts <= PARTS then break end
            base, base_sum = till, parts[1][1]
            table.remove(parts, 1)
        end
        tat = base
        for _, part in ipairs(parts) do tat = behind(part, tat) end
    end
    local function promise(till, lasts)
        sum = sum + lasts
        local last = parts[#parts]
        if last and till <= last[2] + math.floor(burst / GRAINS) then
            last[5] = math.max(least_of(last), till) + lasts
            last[1], last[3], last[4] = sum, math.max(last[3], till), last[4] + lasts
        else
            parts[#parts + 1] = { sum, till, till, lasts, till + lasts }
        end
        count()
    end
    count()
    -- A call has cost more than it was charged, or less. What was charged for nothing is taken out of the
    -- oldest leases that it may be of: that brings the line back least.
    if cost > charged then
        promise(now, math.ceil((cost - charged) * b / a))
    elseif cost < charged and since > base_sum then
        local less = math.floor((charged - cost) * b / a)
        for _, part in ipairs(parts) do
            if part[1] >= since then
                local of_it = math.min(part[4], less)
                part[4], less = part[4] - of_it, less - of_it
            end
        end
        count()
    end
    if left >= 0 then
        local told = now + math.max(burst - math.floor(left * b / a), 0)
        -- Many services say it with each reply. Where there is enough, what calls did not need comes back
        -- all the same.
        if told > tat then
            tat, base, base_sum, parts = told, told, sum, {}
        end
    end
    if want > 0 then
        -- What comes soon, or half of what is there: a call may turn out to cost less than it asks for.
        local saved = math.floor(math.max(burst - math.max(tat - now, 0), 0) * a / b)
        local soon = math.floor(a * QUANTUM / b)
        local share = math.floor(math.max(soon, math.floor(saved / 2)) / active)
        local rest = whole(math.min(want, math.max(least, share)))
        local longest = LEASE
        -- Who calls now and then wants one row's, and uses what it gets.
        local needs = want > least or charged > cost
        if gap > LEASE and gap <= ACTIVE and needs then longest = LONGEST end
        local line = math.max(tat, now) - burst
        -- One place in line for each, or who asks first would get all.
        local own = get('l:' .. worker)
        if own > now then
            answer = { 'again', text(own - now) }
        elseif line > now + HORIZON then
            answer = { 'again', text(line - HORIZON - now) }
        else
            -- A permit may be used until its lease ends, so it counts from there. As long as the line is
            -- no shorter than that, nothing is lost by it. Where it saves too little, what is granted is
            -- cut: the less a part of it is, the longer it may be used, and the next part goes on from
            -- there.
            local part = rest
            if math.ceil(rest * b / a) + longest > burst then
                local at_once = c
                if burst - math.floor(burst / 4) >= SHORTEST then at_once = math.floor(c / 4) end
                part = whole(math.min(want, math.max(least, at_once)))
            end
            answer = { 'lease' }
            while rest > 0 and #answer <= 4 * (MOST_LEASES - 1) + 1 do
                local granted = math.min(part, rest)
                local lasts = math.ceil(granted * b / a)
                local lease = math.max(SHORTEST, math.min(longest, burst - lasts))
                -- Its own length is not the line's: a dear row waits for its turn, and then for what it
                -- costs.
                local from = math.max(now, math.max(tat, now) - burst + lasts)
                local till = from + lease
                promise(till, lasts)
                set('l:' .. worker, from)
                for _, each in ipairs({ granted, from - now, till - now, sum }) do
                    answer[#answer + 1] = text(each)
                end
                rest = rest - granted
            end
        end
    end
    words = {}
    for at, part in ipairs(parts) do
        words[at] = string.format('%.0f %.0f %.0f %.0f %.0f', unpack(part))
    end
    redis.call('HSET', limit, 'parts', table.concat(words, ' '))
    set('tat', tat)
    set('base', base)
    set('base_sum', base_sum)
    set('sum', sum)
else
    -- `a` permits in all, or at a time.
    local flying, spent, own = get('flying'), get('spent'), get('f:' .. worker)
    local ended = math.min(charged + back, own)
    own, flying = own - ended, flying - ended
    if kind == 'budget' then spent = math.min(spent + cost, MOST) end
    if want > 0 then
        local free = math.max(a - spent - flying, 0)
        local share = math.floor(free / (2 * active))
        local granted = whole(math.min(want, math.max(least, share)))
        if granted <= free then
            own, flying = own + granted, flying + granted
            answer = { 'lease', text(granted), '0', text(LASTS), '0' }
        elseif flying == 0 and kind == 'budget' then
            answer = { 'never', text(free) }
        else
            answer = { 'settle', text(AGAIN) }
        end
    end
    set('flying', flying)
    set('spent', spent)
    set('f:' .. worker, own)
end

if is_new then answer = { 'set', version, kind, text(a), text(b), text(c) } end
answer = answer or { 'noted' }
redis.call('HSET', limit, own_number, number, own_answer, table.concat(answer, ' '))
return answer
