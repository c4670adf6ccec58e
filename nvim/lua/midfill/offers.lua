--- Keeps each buffer's last answer, and which of its suggestions is shown.
local report = require('midfill.report')
local suggestions = require('midfill.suggestion')

local M = {}

---@class midfill.Offers
---@field items midfill.Suggestion[] the last answer
---@field index integer which of them is shown

---@type table<integer, midfill.Offers>
local buffers = {}

--- Version of the text and cursor: an answer is valid only while both are unchanged.
---@param buf integer
---@return string
function M.place(buf)
  local row, col = suggestions.cursor()
  return ('%d:%d:%d'):format(vim.api.nvim_buf_get_changedtick(buf), row, col)
end

--- Store the answer to a request at the cursor; the buffer must not have changed since the request.
---@param client vim.lsp.Client
---@param buf integer
---@param items table[]
---@param index integer which of them to show, or the first if there are fewer
function M.take(client, buf, items, index)
  local last = M.rest(buf) and M.current(buf) -- nil if something else was typed
  local taken = vim.tbl_map(function(item)
    return suggestions.from_item(client, buf, item)
  end, items)
  buffers[buf] = { items = taken, index = math.min(index, math.max(#items, 1)) }
  report.shown(M.current(buf), last)
end

--- Forget the answer.
---@param buf integer
function M.drop(buf)
  buffers[buf] = nil
end

--- The shown suggestion, as the server sent it.
---@param buf integer
---@return midfill.Suggestion|nil
function M.current(buf)
  local offers = buffers[buf]
  return offers and offers.items[offers.index]
end

--- The part of the suggestion that is not typed yet, or nil.
---@param buf integer
---@return midfill.Rest|nil
function M.rest(buf)
  return suggestions.rest(M.current(buf), buf)
end

---@param buf integer
---@return integer
function M.count(buf)
  return buffers[buf] and #buffers[buf].items or 0
end

--- Number of the shown suggestion and their count, such as "1/3"; nil if there is only one.
---@param buf integer
---@return string|nil
function M.hint(buf)
  return M.count(buf) > 1 and (' (%d/%d)'):format(buffers[buf].index, M.count(buf)) or nil
end

--- Show the next suggestion; false if there is only one.
---@param buf integer
---@return boolean
function M.turn(buf)
  local several = M.count(buf) > 1
  if several then
    buffers[buf].index = buffers[buf].index % M.count(buf) + 1
  end
  return several
end

--- Follow the acceptance of an inserted piece: show the rest from now on.
---@param buf integer
---@param rest midfill.Rest the rest before the acceptance
---@param piece string
function M.advance(buf, rest, piece)
  local current = M.current(buf)
  if piece == rest.text or not current then
    M.drop(buf)
  else
    buffers[buf] = { items = { suggestions.behind(current, buf, rest, piece) }, index = 1 }
  end
end

return M
