--- Counts this session's suggestions and the cost of its prompts; stores no text, and nothing on disk.
local M = {}

local counts = { shown = 0, accept = 0, accept_word = 0, accept_line = 0, dismiss = 0 }
local heats = { hot = 0, warm = 0, cold = 0 }
local milliseconds = {}
local KEPT = 1000

---@param what 'shown'|'accept'|'accept_word'|'accept_line'|'dismiss'
function M.count(what)
  counts[what] = counts[what] + 1
end

---@param usage table the parameters of midfill/usage
function M.observe(usage)
  heats[usage.heat] = heats[usage.heat] + 1
  table.insert(milliseconds, usage.ms)
  if #milliseconds > KEPT then
    table.remove(milliseconds, 1)
  end
end

---@param sorted number[]
---@param share number
---@return number
local function percentile(sorted, share)
  return sorted[math.max(1, math.ceil(share * #sorted))] or 0
end

---@return string[]
function M.lines()
  local sorted = vim.fn.sort(milliseconds, 'f')
  local asked = heats.hot + heats.warm + heats.cold
  return {
    ('suggestions shown: %d'):format(counts.shown),
    ('accepted: %d whole, %d by line, %d by word'):format(counts.accept, counts.accept_line, counts.accept_word),
    ('dismissed: %d'):format(counts.dismiss),
    ('requests: %d (%d hot, %d warm, %d cold)'):format(asked, heats.hot, heats.warm, heats.cold),
    ('answered in: %.0f ms (p50), %.0f ms (p95)'):format(percentile(sorted, 0.5), percentile(sorted, 0.95)),
  }
end

return M
