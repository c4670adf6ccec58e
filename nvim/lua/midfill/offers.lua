--- What each buffer was last answered, which of it is shown, and going on to its rest or to the next one.
local report = require('midfill.report')
local suggestions = require('midfill.suggestion')

local M = {}

---@class midfill.Offers
---@field items midfill.Suggestion[] the last answer
---@field index integer which of them is shown

---@type table<integer, midfill.Offers>
local buffers = {}

--- The text's version and the cursor: an answer is right only where both are as they were.
---@param buf integer
---@return string
function M.place(buf)
  local row, col = suggestions.cursor()
  return ('%d:%d:%d'):format(vim.api.nvim_buf_get_changedtick(buf), row, col)
end

--- Take an answer to a request at the cursor, whose buffer has not changed since.
---@param client vim.lsp.Client
---@param buf integer
---@param items table[]
---@param index integer which of them to show, if there are so many
function M.take(client, buf, items, index)
  local last = M.current(buf)
  local taken = vim.tbl_map(function(item)
    return suggestions.from_item(client, buf, item)
  end, items)
  buffers[buf] = { items = taken, index = math.min(index, math.max(#items, 1)) }
  report.shown(M.current(buf), last)
end

--- Show nothing any more.
---@param buf integer
function M.drop(buf)
  buffers[buf] = nil
end

--- What is shown, as it was made.
---@param buf integer
---@return midfill.Suggestion|nil
function M.current(buf)
  local offers = buffers[buf]
  return offers and offers.items[offers.index]
end

--- What of it is still to be typed at the cursor, or nil.
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

--- Which of how many is shown, where there are several.
---@param buf integer
---@return string|nil
function M.hint(buf)
  return M.count(buf) > 1 and (' (%d/%d)'):format(buffers[buf].index, M.count(buf)) or nil
end

--- Go on to the next of several; false where there is no other.
---@param buf integer
---@return boolean
function M.turn(buf)
  local several = M.count(buf) > 1
  if several then
    buffers[buf].index = buffers[buf].index % M.count(buf) + 1
  end
  return several
end

--- Follow the acceptance of a piece, which has been inserted: what is behind it is shown from now on.
---@param buf integer
---@param rest midfill.Rest what was left before
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
