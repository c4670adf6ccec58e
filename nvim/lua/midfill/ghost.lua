--- Draws ghost text with extmarks: the first line in place, the others below it.
local compat = require('midfill.compat')

local M = {}

local namespace = vim.api.nvim_create_namespace('midfill.ghost')

--- Expand tabs to their width in the current window, since extmarks do not.
---@param text string
---@param column integer the display column it begins at
---@return string
function M.expand_tabs(text, column)
  local pieces = {}
  for before, tab in text:gmatch('([^\t]*)(\t?)') do
    column = column + vim.api.nvim_strwidth(before)
    local width = vim.fn.strdisplaywidth(tab, column)
    table.insert(pieces, before .. (' '):rep(width))
    column = column + width
  end
  return table.concat(pieces)
end

--- Split the text around brackets behind the cursor that it also contains, so that they are drawn once.
---@param first string
---@param replaced string
---@return string in place of the cursor
---@return string behind the brackets
local function around(first, replaced)
  local found
  if replaced ~= '' then
    local from, to = first:find(replaced, 1, true)
    while from do
      found = { from, to }
      from, to = first:find(replaced, from + 1, true)
    end
  end
  if not found then
    return first, ''
  end
  return first:sub(1, found[1] - 1), first:sub(found[2] + 1)
end

---@param buf integer
function M.clear(buf)
  if vim.api.nvim_buf_is_valid(buf) then
    vim.api.nvim_buf_clear_namespace(buf, namespace, 0, -1)
  end
end

---@param buf integer
---@param rest midfill.Rest
---@param hint string|nil shown at its end
function M.draw(buf, rest, hint)
  M.clear(buf)
  compat.show_here(namespace)
  local lines = vim.split(rest.text, '\n', { plain = true })
  local line = vim.api.nvim_buf_get_lines(buf, rest.row, rest.row + 1, false)[1]
  local first, more = around(table.remove(lines, 1), line:sub(rest.col + 1, rest.col + rest.replaced))
  local column = vim.fn.strdisplaywidth(line:sub(1, rest.col))
  local virt_lines = vim.tbl_map(function(text)
    return { { M.expand_tabs(text, 0), 'MidfillGhost' } }
  end, lines)
  local chunks = { { M.expand_tabs(first, column), 'MidfillGhost' } }
  table.insert(virt_lines[#virt_lines] or chunks, hint and { hint, 'MidfillGhost' } or nil)
  vim.api.nvim_buf_set_extmark(buf, namespace, rest.row, rest.col, {
    virt_text = chunks,
    virt_text_pos = 'inline',
    virt_lines = #virt_lines > 0 and virt_lines or nil,
    hl_mode = 'combine',
  })
  if more ~= '' then
    vim.api.nvim_buf_set_extmark(buf, namespace, rest.row, rest.col + rest.replaced, {
      virt_text = { { more, 'MidfillGhost' } },
      virt_text_pos = 'inline',
      hl_mode = 'combine',
    })
  end
end

return M
