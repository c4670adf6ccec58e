--- Whether midfill suggests: for all buffers, and for each.
local M = {}

local all = true

---@param buf integer
---@return boolean
function M.on(buf)
  return all and vim.b[buf].midfill_enabled ~= false
end

--- Switch suggestions on or off; `buf` nil means everywhere.
---@param on boolean
---@param buf integer|nil
function M.set(on, buf)
  if buf then
    vim.b[buf].midfill_enabled = on
  else
    all = on
  end
end

return M
