--- Requests and draws suggestions; the latest request wins.
local client_of = require('midfill.client').of
local compat = require('midfill.compat')
local ghost = require('midfill.ghost')
local next_edit = require('midfill.next_edit')
local offers = require('midfill.offers')
local suggestions = require('midfill.suggestion')
local switch = require('midfill.switch')

local M = {}

local METHOD = 'textDocument/inlineCompletion'
local INVOKED, AUTOMATIC = 1, 2

---@class midfill.Buffer
---@field pending integer|nil id of the request in flight
---@field asked string|nil the place and state of the last request
---@field request { by_hand: boolean }|nil the newest request, until it is answered or cancelled
---@field wanted boolean|nil whether the user asks for a suggestion by hand with the next insertion

---@type table<integer, midfill.Buffer>
local buffers = {}

---@return boolean
local function inserting()
  return vim.api.nvim_get_mode().mode:sub(1, 1) == 'i'
end

---@param buf integer
---@param buffer midfill.Buffer
local function cancel(buf, buffer)
  local client = client_of(buf)
  if buffer.pending and client then
    compat.call(client, 'cancel_request', buffer.pending)
  end
  buffer.pending, buffer.request = nil, nil
end

---@param buf integer
local function draw(buf)
  local rest = offers.rest(buf)
  if rest then
    next_edit.hide(buf) -- never beside ghost text
    ghost.draw(buf, rest, offers.hint(buf))
  else
    ghost.clear(buf)
  end
end

---@param buf integer
---@param kind integer
---@param index integer which item of the answer to show
local function ask(buf, kind, index)
  local client = client_of(buf)
  local buffer = buffers[buf]
  local asked = offers.place(buf)
  if not client or (kind == AUTOMATIC and buffer.asked == asked) then
    return
  end
  cancel(buf, buffer)
  buffer.asked = asked
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.context = { triggerKind = kind }
  local request = { by_hand = kind == INVOKED } -- a cancelled one for the same place may still be answered
  buffer.request = request
  local sent, id = compat.call(client, 'request', METHOD, params, function(err, result)
    if buffer.request ~= request then
      return
    end
    buffer.request = nil
    local current = vim.api.nvim_get_current_buf() == buf and inserting() and buffers[buf] == buffer
    if not current or buffer.asked ~= asked or offers.place(buf) ~= asked then
      return
    end
    buffer.pending = nil
    offers.take(client, buf, not err and result and (result.items or result) or {}, index)
    draw(buf)
  end, buf)
  buffer.pending = sent and id or nil
end

---@param buf integer
local function follow(buf)
  if vim.api.nvim_get_current_buf() == buf and buffers[buf] and inserting() then
    draw(buf)
    if switch.automatic(buf) then
      ask(buf, AUTOMATIC, 1)
    end
  end
end

--- Start suggesting in this buffer.
---@param buf integer
function M.attach(buf)
  buffers[buf] = {}
  local group = vim.api.nvim_create_augroup('midfill.surface.' .. buf, {})
  local function on(events, callback)
    vim.api.nvim_create_autocmd(events, { group = group, buffer = buf, callback = callback })
  end
  on({ 'TextChangedI', 'TextChangedP', 'CursorMovedI' }, function()
    follow(buf)
  end)
  on('InsertEnter', function()
    -- The mode changes after this event, and the cursor may move.
    vim.schedule(function()
      if buffers[buf] and buffers[buf].wanted then
        M.refresh(buf, true)
      else
        follow(buf)
      end
    end)
  end)
  on('BufLeave', function()
    M.clear(buf)
  end)
  suggestions.when_insertion_ends(group, buf, M.clear)
  vim.schedule(function() -- what was typed before the server came
    follow(buf)
  end)
end

---@param buf integer
function M.detach(buf)
  pcall(vim.api.nvim_del_augroup_by_name, 'midfill.surface.' .. buf)
  M.clear(buf)
  buffers[buf] = nil
end

--- Follow the switch.
---@param buf integer
function M.switched(buf)
  M.clear(buf)
  follow(buf)
end

--- Request a suggestion at the cursor without a key, if the user is still inserting. One that the user asks for in
--- normal mode is requested where they inserted last.
---@param buf integer
---@param invoked boolean
function M.refresh(buf, invoked)
  local buffer = buffers[buf]
  if vim.api.nvim_get_current_buf() ~= buf or not buffer or not (invoked or switch.automatic(buf)) then
    return
  elseif inserting() then
    buffer.asked, buffer.wanted = nil, nil
    ask(buf, invoked and INVOKED or AUTOMATIC, 1)
  elseif invoked then
    buffer.wanted = suggestions.insert_again()
  end
end

--- Whether a suggestion that the user asked for is on its way.
---@param buf integer
---@return boolean
function M.awaits(buf)
  local buffer = buffers[buf]
  return buffer ~= nil and (buffer.wanted == true or buffer.request ~= nil and buffer.request.by_hand)
end

--- Hide the suggestion and cancel the request.
---@param buf integer
function M.clear(buf)
  local buffer = buffers[buf]
  if buffer then
    cancel(buf, buffer)
    buffer.asked = nil
  end
  offers.drop(buf)
  ghost.clear(buf)
end

--- Hide the suggestion until the next change or move.
---@param buf integer
function M.dismiss(buf)
  M.clear(buf)
  buffers[buf].asked = offers.place(buf)
end

--- Draw the rest of the suggestion before the insertion of a piece redraws the screen.
---@param buf integer
---@param rest midfill.Rest
---@param piece string
function M.shrink(buf, rest, piece)
  if piece == rest.text then
    ghost.clear(buf)
  else
    ghost.draw(buf, vim.tbl_extend('force', rest, { text = rest.text:sub(#piece + 1) }), offers.hint(buf))
  end
end

--- Follow the acceptance of a piece; the rest stays visible.
---@param buf integer
---@param rest midfill.Rest
---@param piece string
function M.advance(buf, rest, piece)
  if piece == rest.text then
    M.clear(buf)
  else
    draw(buf)
  end
end

--- Show the next suggestion; requests one where none is shown, and alternatives if there is only one.
---@param buf integer
function M.next(buf)
  if not offers.rest(buf) then
    offers.drop(buf) -- something else was typed: none of its texts fits
  end
  if offers.turn(buf) then
    draw(buf)
  elseif inserting() then
    ask(buf, INVOKED, offers.count(buf) + 1)
  else
    M.refresh(buf, true)
  end
end

return M
