--- Adds the imports that accepted text lacks, by the code actions of the language's own server.
local M = {}

local ALL, FIX = 'source.addMissingImports', 'quickfix'

local namespace = vim.api.nvim_create_namespace('midfill.imports')
local buffer ---@type integer|nil where text was accepted last
local mark ---@type integer of that text

---@return integer[]|nil first row and column, last row and column, from 0
local function place()
  if not buffer or buffer ~= vim.api.nvim_get_current_buf() then
    return nil
  end
  local row, col, more = unpack(vim.api.nvim_buf_get_extmark_by_id(buffer, namespace, mark, { details = true }))
  return row and { row, col, more.end_row, more.end_col } or nil
end

--- Remember the text from a place to the cursor as accepted; a piece right behind the last one goes with it.
---@param buf integer
---@param row integer from 0
---@param col integer
function M.accepted(buf, row, col)
  local last = place()
  if last and last[3] == row and last[4] == col then
    row, col = last[1], last[2]
  end
  if buffer and vim.api.nvim_buf_is_valid(buffer) then
    vim.api.nvim_buf_clear_namespace(buffer, namespace, 0, -1)
  end
  local cursor = vim.api.nvim_win_get_cursor(0)
  buffer = buf
  mark = vim.api.nvim_buf_set_extmark(buf, namespace, row, col, { end_row = cursor[1] - 1, end_col = cursor[2] })
end

--- Whether a code action of this title adds one import.
---@param title string
---@return boolean
function M.adds_import(title)
  local text = title:lower()
  local adds = (text:find('^add%f[%W]') or text:find('^update%f[%W]')) and text:find('%f[%w]import%f[%W]')
  local whole = text:find('^import%f[%W]') or text:find('^include%f[%W]') or text:find('^using%f[%W]')
  return (adds or whole) ~= nil and not text:find('%f[%w]all%f[%W]')
end

--- Whether text was accepted in the current buffer that is still there.
---@return boolean
function M.ready()
  return place() ~= nil
end

---@param buf integer
---@return boolean whether a server adds all missing imports by one action
local function has_all(buf)
  return vim.iter(vim.lsp.get_clients({ bufnr = buf })):any(function(client)
    local kinds = vim.tbl_get(client.server_capabilities, 'codeActionProvider', 'codeActionKinds') or {}
    return vim.iter(kinds):any(function(kind)
      return vim.startswith(kind, ALL)
    end)
  end)
end

--- Add the imports that the text accepted last lacks; of several that fit, the user chooses. False if there is no text.
---@return boolean
function M.add()
  local at = place()
  if not at then
    return false
  end
  local buf, all = vim.api.nvim_get_current_buf(), has_all(vim.api.nvim_get_current_buf())
  local diagnostics = {}
  for _, each in ipairs(vim.diagnostic.get(buf)) do
    if each.lnum >= at[1] and each.lnum <= at[3] and vim.tbl_get(each, 'user_data', 'lsp') then
      table.insert(diagnostics, each.user_data.lsp)
    end
  end
  vim.lsp.buf.code_action({
    apply = true,
    range = { start = { at[1] + 1, at[2] }, ['end'] = { at[3] + 1, math.max(at[4] - 1, 0) } }, -- the last belongs to it
    context = { only = { all and ALL or FIX }, diagnostics = diagnostics },
    filter = function(action)
      return vim.startswith(action.kind or '', ALL) or M.adds_import(action.title)
    end,
  })
  return true
end

return M
