--- Suggests through Neovim's own vim.lsp.inline_completion (0.12), and hides answers that became outdated.
---
--- Neovim shows an answer, and accepts it, until the next answer, even if the text under it has changed. This module
--- therefore filters all answers: it empties the outdated ones and records where each shown one was made. When the
--- text there changes, it removes the answer from the screen, and refuses to accept it.
local client_of = require('midfill.client').of
local offers = require('midfill.offers')
local suggestions = require('midfill.suggestion')
local switch = require('midfill.switch')

local M = {}

local METHOD = 'textDocument/inlineCompletion'
local INVOKED = 1

local namespace = vim.api.nvim_create_namespace('nvim.lsp.inline_completion')

---@class midfill.BuiltinBuffer
---@field dismissed string|nil the place where the user dismissed a suggestion
---@field want_more boolean whether the next request asks for several suggestions
---@field seen boolean|nil whether the user has seen the first of these, so that the second is shown

---@type table<integer, midfill.BuiltinBuffer>
local buffers = {}

--- The attached buffer of a document. Not vim.uri_to_bufnr(), which makes a buffer for one without a name.
---@param uri string
---@return integer|nil
local function buffer_of(uri)
  for buf in pairs(buffers) do
    if vim.api.nvim_buf_is_valid(buf) and vim.uri_from_bufnr(buf) == uri then
      return buf
    end
  end
end

--- The part of an answer that Neovim may see.
---@param buf integer
---@param asked string the place of the request
---@param result table|nil
---@return table
local function admit(buf, asked, result)
  local buffer, client = buffers[buf], client_of(buf)
  local here = vim.api.nvim_get_current_buf() == buf and offers.place(buf) == asked
  if not buffer or not client or not here or not switch.on(buf) or buffer.dismissed == asked then
    offers.drop(buf)
    return { items = {} }
  end
  local items = result and (result.items or result) or {}
  for _, item in ipairs(items) do
    item.insertText = item.insertText:gsub('\r\n', '\n')
  end
  offers.take(client, buf, items, 1)
  return { items = items }
end

--- Intercept the answers to one method between Neovim and the server.
---@param rpc table
---@return table
function M.wrap_rpc(rpc)
  local request = rpc.request
  rpc.request = function(method, params, callback, notify_reply_callback)
    local buf = method == METHOD and buffer_of(params.textDocument.uri)
    if buf then
      local answered, buffer, asked = callback, buffers[buf], offers.place(buf)
      local seen = buffer.want_more and buffer.seen
      if buffer.want_more then
        buffer.want_more, buffer.seen = false, nil
        params.context.triggerKind = INVOKED
      end
      callback = function(_, result, ...)
        answered(nil, admit(buf, asked, result), ...)
        if seen and offers.count(buf) > 1 then
          M.next(buf) -- Neovim shows the first one
        end
      end
    end
    return request(method, params, callback, notify_reply_callback)
  end
  return rpc
end

--- Whether a suggestion that the user asked for is on its way, as far as this module can tell: before its request.
---@param buf integer
---@return boolean
function M.awaits(buf)
  return buffers[buf] ~= nil and buffers[buf].want_more
end

--- Start suggesting in this buffer.
---@param buf integer
function M.attach(buf)
  buffers[buf] = { want_more = false }
  M.switched(buf)
  vim.schedule(function() -- what was typed before the server came
    M.refresh(buf, false)
  end)
end

--- Follow the switch: while it is off, Neovim sends no request.
---@param buf integer
function M.switched(buf)
  M.clear(buf)
  vim.lsp.inline_completion.enable(switch.on(buf), { bufnr = buf })
  -- Made after Neovim's own, these autocommands run after them.
  local group = vim.api.nvim_create_augroup('midfill.builtin.' .. buf, {})
  vim.api.nvim_create_autocmd({ 'InsertEnter', 'CursorMovedI', 'TextChangedI', 'TextChangedP' }, {
    group = group,
    buffer = buf,
    callback = function()
      if not offers.rest(buf) then
        M.clear(buf) -- it no longer fits the cursor
      end
    end,
  })
  suggestions.when_insertion_ends(group, buf, M.clear) -- Neovim hides it at InsertLeave alone
end

---@param buf integer
function M.detach(buf)
  pcall(vim.api.nvim_del_augroup_by_name, 'midfill.builtin.' .. buf)
  M.clear(buf)
  vim.lsp.inline_completion.enable(false, { bufnr = buf })
  buffers[buf] = nil
end

--- Request a suggestion at the cursor without a key, if the user is still inserting. One that the user asks for in
--- normal mode is requested where they inserted last.
---@param buf integer
---@param invoked boolean
function M.refresh(buf, invoked)
  if vim.api.nvim_get_current_buf() ~= buf or not buffers[buf] or not switch.on(buf) then
    return
  elseif vim.api.nvim_get_mode().mode:sub(1, 1) == 'i' then
    buffers[buf].want_more = invoked
    vim.api.nvim_exec_autocmds('CursorMovedI', { buffer = buf, modeline = false })
  elseif invoked then
    buffers[buf].want_more = suggestions.insert_again()
  end
end

--- Hide the suggestion.
---@param buf integer
function M.clear(buf)
  offers.drop(buf)
  vim.api.nvim_buf_clear_namespace(buf, namespace, 0, -1)
end

--- Hide the suggestion until the next change or move.
---@param buf integer
function M.dismiss(buf)
  M.clear(buf)
  buffers[buf].dismissed = offers.place(buf)
end

--- Hide a suggestion that is accepted whole before the insertion redraws the screen.
---@param buf integer
---@param rest midfill.Rest
---@param piece string
function M.shrink(buf, rest, piece)
  if piece == rest.text then
    vim.api.nvim_buf_clear_namespace(buf, namespace, 0, -1)
  end
end

--- Follow the acceptance of a piece. The rest stays visible on the same line; otherwise it returns with the next
--- answer.
---@param buf integer
---@param rest midfill.Rest
---@param piece string
function M.advance(buf, rest, piece)
  if piece == rest.text then
    -- Neovim must forget its item, since the item's range does not follow later typing. Neovim's own acceptance
    -- would do that too, but only after keys that are already queued.
    vim.lsp.inline_completion.enable(false, { bufnr = buf })
    M.switched(buf)
  elseif piece:find('\n') then
    M.clear(buf)
  end
end

--- Show the next suggestion; requests alternatives if there is only one.
---@param buf integer
function M.next(buf)
  if offers.turn(buf) then
    vim.lsp.inline_completion.select({ bufnr = buf, count = 1 })
  else
    buffers[buf].want_more, buffers[buf].seen = true, offers.count(buf) > 0
    vim.api.nvim_exec_autocmds('CursorMovedI', { buffer = buf, modeline = false })
  end
end

return M
