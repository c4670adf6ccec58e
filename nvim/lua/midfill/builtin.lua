--- Suggests through Neovim's own vim.lsp.inline_completion (0.12), and keeps what it shows true.
---
--- Neovim goes on showing an answer, and would accept it, while the text under it changes, until the next answer.
--- So answers pass through here first: those to a state that is over are emptied, and of what is shown we know
--- where it was made; once something else stands there, it is taken off the screen, and it cannot be accepted.
local client_of = require('midfill.client').of
local report = require('midfill.report')
local suggestions = require('midfill.suggestion')
local switch = require('midfill.switch')

local M = {}

local METHOD = 'textDocument/inlineCompletion'
local INVOKED = 1

local namespace = vim.api.nvim_create_namespace('nvim.lsp.inline_completion')

---@class midfill.BuiltinBuffer
---@field items midfill.Suggestion[] the last answer, as Neovim has it
---@field index integer which of them Neovim shows
---@field dismissed string|nil the place where nothing is to be shown
---@field want_more boolean whether the next request asks for several suggestions

---@type table<integer, midfill.BuiltinBuffer>
local buffers = {}

---@param buf integer
---@return string
local function place(buf)
  local row, col = suggestions.cursor()
  return ('%d:%d:%d'):format(vim.api.nvim_buf_get_changedtick(buf), row, col)
end

---@param buf integer
local function hide(buf)
  vim.api.nvim_buf_clear_namespace(buf, namespace, 0, -1)
end

--- What Neovim may see of an answer.
---@param buf integer
---@param asked string the place it was asked for
---@param result table|nil
---@return table
local function admit(buf, asked, result)
  local buffer, client = buffers[buf], client_of(buf)
  local items = result and (result.items or result) or {}
  local here = vim.api.nvim_get_current_buf() == buf and place(buf) == asked
  if not here or not buffer or not client or not switch.on(buf) or buffer.dismissed == asked then
    items = {}
  end
  if buffer then
    local last = buffer.items[buffer.index]
    buffer.items = vim.tbl_map(function(item)
      item.insertText = item.insertText:gsub('\r\n', '\n')
      return suggestions.from_item(client, buf, item)
    end, items)
    buffer.index = 1
    report.shown(buffer.items[1], last)
  end
  return { items = items }
end

--- Come between Neovim and the server, for the answers to one method.
---@param rpc table
---@return table
function M.wrap_rpc(rpc)
  local request = rpc.request
  rpc.request = function(method, params, callback, notify_reply_callback)
    if method == METHOD then
      local buf, answered = vim.uri_to_bufnr(params.textDocument.uri), callback
      local buffer, asked = buffers[buf], place(buf)
      local more = buffer and buffer.want_more
      if more then
        buffer.want_more = false
        params.context.triggerKind = INVOKED
      end
      callback = function(_, result, ...)
        answered(nil, admit(buf, asked, result), ...)
        if more and buffers[buf] and #buffers[buf].items > 1 then
          M.next(buf) -- Neovim shows the first, which was there before
        end
      end
    end
    return request(method, params, callback, notify_reply_callback)
  end
  return rpc
end

--- Take off the screen what does not go on at the cursor any more.
---@param buf integer
local function check(buf)
  local buffer = buffers[buf]
  if not M.rest(buf) then
    buffer.items = {}
    hide(buf)
  end
end

--- Suggest in this buffer from now on.
---@param buf integer
function M.attach(buf)
  buffers[buf] = { items = {}, index = 1, want_more = false }
  M.switched(buf)
end

--- Follow the switch: while it is off, Neovim asks for nothing.
---@param buf integer
function M.switched(buf)
  M.clear(buf)
  vim.lsp.inline_completion.enable(switch.on(buf), { bufnr = buf })
  -- Made after Neovim's own, these autocommands run after them.
  vim.api.nvim_create_autocmd({ 'InsertEnter', 'CursorMovedI', 'TextChangedI', 'TextChangedP' }, {
    group = vim.api.nvim_create_augroup('midfill.builtin.' .. buf, {}),
    buffer = buf,
    callback = function()
      check(buf)
    end,
  })
end

---@param buf integer
function M.detach(buf)
  pcall(vim.api.nvim_del_augroup_by_name, 'midfill.builtin.' .. buf)
  buffers[buf] = nil
end

--- Show nothing.
---@param buf integer
function M.clear(buf)
  local buffer = buffers[buf]
  if buffer then
    buffer.items = {}
    hide(buf)
  end
end

--- Hide what is shown until the next change or move.
---@param buf integer
function M.dismiss(buf)
  M.clear(buf)
  buffers[buf].dismissed = place(buf)
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

--- Insert a piece of what is shown. What follows it stays shown where it is on the same line; else it comes back
--- with the next answer.
---@param buf integer
---@param rest midfill.Rest
---@param piece string
function M.insert(buf, rest, piece)
  if piece == rest.text then
    -- Neovim must forget its item, whose range does not follow what has been typed since. Its own way of accepting
    -- would do it, but later, behind the keys that have been typed meanwhile.
    vim.lsp.inline_completion.enable(false, { bufnr = buf })
    M.switched(buf)
  end
  suggestions.insert(buf, rest, piece)
  check(buf)
end

--- Show the next of several suggestions, asking for more than one where that has not been done.
---@param buf integer
function M.next(buf)
  local buffer = buffers[buf]
  if #buffer.items > 1 then
    buffer.index = buffer.index % #buffer.items + 1
    vim.lsp.inline_completion.select({ bufnr = buf, count = 1 })
  else
    buffer.want_more = true
    vim.api.nvim_exec_autocmds('CursorMovedI', { buffer = buf, modeline = false })
  end
end

return M
