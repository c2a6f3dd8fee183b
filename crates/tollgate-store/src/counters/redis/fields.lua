-- Shared by all scripts on meters. Amounts are stored as text; comparisons are exact up to 2^53 nano-USD (nine million USD).
local function number(text) return tonumber(text or '0') or 0 end
local function text(value) return string.format('%.0f', value) end

-- The field of a day ('d:') or a month ('m:'). Four of each kind are kept, because requests end after midnight and a clock
-- may step; the lowest is deleted for a new one.
local function period_field(key, kind, period)
    local field = kind .. text(period)
    if redis.call('HEXISTS', key, field) == 1 then return field end
    local periods = {}
    for _, name in ipairs(redis.call('HKEYS', key)) do
        if string.sub(name, 1, 2) == kind then periods[#periods + 1] = number(string.sub(name, 3)) end
    end
    table.sort(periods)
    if #periods >= 4 then redis.call('HDEL', key, kind .. text(periods[1])) end
    return field
end
