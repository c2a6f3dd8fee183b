-- Shared by all scripts on meters. Amounts stay text wherever they are stored; what is compared is exact up to 2^53 nano-USD
-- (nine million USD).
local function number(text) return tonumber(text or '0') or 0 end
local function text(value) return string.format('%.0f', value) end

-- The field of a day or a month. Four of a kind are kept, because requests end after midnight and a clock may step forward
-- and back; the lowest goes for a new one.
local function opened(key, kind, at)
    local field = kind .. text(at)
    if redis.call('HEXISTS', key, field) == 1 then return field end
    local known = {}
    for _, name in ipairs(redis.call('HKEYS', key)) do
        if string.sub(name, 1, 2) == kind then known[#known + 1] = number(string.sub(name, 3)) end
    end
    table.sort(known)
    if #known >= 4 then redis.call('HDEL', key, kind .. text(known[1])) end
    return field
end
