--- Asks for suggestions and draws them, without vim.lsp.inline_completion: the latest request wins.
local client_of = require('midfill.client').of
local compat = require('midfill.compat')
local ghost = require('midfill.ghost')
local report = require('midfill.report')
local suggestions = require('midfill.suggestion')
local switch = require('midfill.switch')

local M = {}

local METHOD = 'textDocument/inlineCompletion'
local INVOKED, AUTOMATIC = 1, 2

---@class midfill.Buffer
---@field items midfill.Suggestion[] the last answer
---@field index integer which of them is shown
---@field pending integer|nil the request that waits for its answer
---@field asked string|nil the place and state of the last request

---@type table<integer, midfill.Buffer>
local buffers = {}

---@return boolean
local function inserting()
  return vim.api.nvim_get_mode().mode:sub(1, 1) == 'i'
end

--- The text's version and the cursor: an answer is shown only where both are as they were.
---@param buf integer
---@return string
local function place(buf)
  local row, col = suggestions.cursor()
  return ('%d:%d:%d'):format(vim.api.nvim_buf_get_changedtick(buf), row, col)
end

---@param buf integer
---@param buffer midfill.Buffer
local function cancel(buf, buffer)
  local client = client_of(buf)
  if buffer.pending and client then
    compat.call(client, 'cancel_request', buffer.pending)
  end
  buffer.pending = nil
end

---@param buf integer
---@param hint string|nil
local function draw(buf, hint)
  local rest = M.rest(buf)
  if rest then
    ghost.draw(buf, rest, hint)
  else
    ghost.clear(buf)
  end
end

---@param buf integer
---@param client vim.lsp.Client
---@param items table[]
---@param shown integer
local function take(buf, client, items, shown)
  local buffer = buffers[buf]
  local told = buffer.items[buffer.index]
  buffer.items = vim.tbl_map(function(item)
    return suggestions.from_item(client, buf, item)
  end, items)
  buffer.index = math.min(shown, math.max(#items, 1))
  draw(buf, shown > 1 and #items > 1 and (' (%d/%d)'):format(buffer.index, #items) or nil)
  report.shown(buffer.items[buffer.index], told)
end

---@param buf integer
---@param kind integer
---@param shown integer which item of the answer to show
local function ask(buf, kind, shown)
  local client = client_of(buf)
  local buffer = buffers[buf]
  local asked = place(buf)
  if not client or (kind == AUTOMATIC and buffer.asked == asked) then
    return
  end
  cancel(buf, buffer)
  buffer.asked = asked
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.context = { triggerKind = kind }
  local sent, id = compat.call(client, 'request', METHOD, params, function(err, result)
    local current = vim.api.nvim_get_current_buf() == buf and inserting() and buffers[buf] == buffer
    if not current or buffer.asked ~= asked or place(buf) ~= asked then
      return
    end
    buffer.pending = nil
    local items = not err and result and (result.items or result) or {}
    take(buf, client, items, shown)
  end, buf)
  buffer.pending = sent and id or nil
end

---@param buf integer
local function follow(buf)
  if switch.on(buf) and inserting() then
    draw(buf)
    ask(buf, AUTOMATIC, 1)
  end
end

--- Suggest in this buffer from now on.
---@param buf integer
function M.attach(buf)
  buffers[buf] = { items = {}, index = 1 }
  local group = vim.api.nvim_create_augroup('midfill.own.' .. buf, {})
  vim.api.nvim_create_autocmd({ 'TextChangedI', 'TextChangedP', 'CursorMovedI' }, {
    group = group,
    buffer = buf,
    callback = function()
      follow(buf)
    end,
  })
  vim.api.nvim_create_autocmd('InsertEnter', {
    group = group,
    buffer = buf,
    callback = function()
      -- The mode changes after this, and the cursor may move.
      vim.schedule(function()
        if vim.api.nvim_get_current_buf() == buf and buffers[buf] then
          follow(buf)
        end
      end)
    end,
  })
  vim.api.nvim_create_autocmd({ 'InsertLeave', 'BufLeave' }, {
    group = group,
    buffer = buf,
    callback = function()
      M.clear(buf)
    end,
  })
end

---@param buf integer
function M.detach(buf)
  pcall(vim.api.nvim_del_augroup_by_name, 'midfill.own.' .. buf)
  ghost.clear(buf)
  buffers[buf] = nil
end

--- Follow the switch.
---@param buf integer
function M.switched(buf)
  M.clear(buf)
  if vim.api.nvim_get_current_buf() == buf and buffers[buf] then
    follow(buf)
  end
end

--- Show nothing, and wait for nothing.
---@param buf integer
function M.clear(buf)
  local buffer = buffers[buf]
  if buffer then
    cancel(buf, buffer)
    buffer.items = {}
    buffer.asked = nil
  end
  ghost.clear(buf)
end

--- Hide what is shown until the next change or move.
---@param buf integer
function M.dismiss(buf)
  M.clear(buf)
  buffers[buf].asked = place(buf)
end

---@param buf integer
---@return midfill.Suggestion|nil
function M.suggestion(buf)
  local buffer = buffers[buf]
  return buffer and buffer.items[buffer.index]
end

---@param buf integer
---@return midfill.Rest|nil
function M.rest(buf)
  return suggestions.rest(M.suggestion(buf), buf)
end

--- Insert a piece of what is shown; what follows it stays shown.
---@param buf integer
---@param rest midfill.Rest
---@param piece string
function M.insert(buf, rest, piece)
  local buffer = buffers[buf]
  local suggestion = buffer.items[buffer.index]
  suggestions.insert(buf, rest, piece)
  if piece == rest.text then
    M.clear(buf)
  else
    buffer.items = { suggestions.behind(suggestion, buf, rest, piece) }
    buffer.index = 1
    draw(buf)
  end
end

--- Show the next of several suggestions, asking for more than one where that has not been done.
---@param buf integer
function M.next(buf)
  local buffer = buffers[buf]
  if #buffer.items > 1 then
    buffer.index = buffer.index % #buffer.items + 1
    draw(buf, (' (%d/%d)'):format(buffer.index, #buffer.items))
  elseif inserting() then
    ask(buf, INVOKED, #buffer.items + 1)
  end
end

return M
