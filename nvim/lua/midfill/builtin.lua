--- Suggests through Neovim's own vim.lsp.inline_completion (0.12), and keeps what it shows true.
---
--- Neovim goes on showing an answer, and would accept it, while the text under it changes, until the next answer.
--- So answers pass through here first: those to a state that is over are emptied, and of what is shown we know
--- where it was made; once something else stands there, it is taken off the screen, and it cannot be accepted.
local client_of = require('midfill.client').of
local offers = require('midfill.offers')
local switch = require('midfill.switch')

local M = {}

local METHOD = 'textDocument/inlineCompletion'
local INVOKED = 1

local namespace = vim.api.nvim_create_namespace('nvim.lsp.inline_completion')

---@class midfill.BuiltinBuffer
---@field dismissed string|nil the place where nothing is to be shown
---@field want_more boolean whether the next request asks for several suggestions

---@type table<integer, midfill.BuiltinBuffer>
local buffers = {}

--- What Neovim may see of an answer.
---@param buf integer
---@param asked string the place it was asked for
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

--- Come between Neovim and the server, for the answers to one method.
---@param rpc table
---@return table
function M.wrap_rpc(rpc)
  local request = rpc.request
  rpc.request = function(method, params, callback, notify_reply_callback)
    if method == METHOD then
      local buf, answered = vim.uri_to_bufnr(params.textDocument.uri), callback
      local buffer, asked = buffers[buf], offers.place(buf)
      local more = buffer and buffer.want_more
      if more then
        buffer.want_more = false
        params.context.triggerKind = INVOKED
      end
      callback = function(_, result, ...)
        answered(nil, admit(buf, asked, result), ...)
        if more and offers.count(buf) > 1 then
          M.next(buf) -- Neovim shows the first, which was there before
        end
      end
    end
    return request(method, params, callback, notify_reply_callback)
  end
  return rpc
end

--- Suggest in this buffer from now on.
---@param buf integer
function M.attach(buf)
  buffers[buf] = { want_more = false }
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
      if not offers.rest(buf) then
        M.clear(buf) -- it does not go on at the cursor any more
      end
    end,
  })
end

---@param buf integer
function M.detach(buf)
  pcall(vim.api.nvim_del_augroup_by_name, 'midfill.builtin.' .. buf)
  M.clear(buf)
  vim.lsp.inline_completion.enable(false, { bufnr = buf })
  buffers[buf] = nil
end

--- Show nothing.
---@param buf integer
function M.clear(buf)
  offers.drop(buf)
  vim.api.nvim_buf_clear_namespace(buf, namespace, 0, -1)
end

--- Hide what is shown until the next change or move.
---@param buf integer
function M.dismiss(buf)
  M.clear(buf)
  buffers[buf].dismissed = offers.place(buf)
end

--- Take what is accepted whole off the screen before it is inserted, which redraws the screen.
---@param buf integer
---@param rest midfill.Rest
---@param piece string
function M.shrink(buf, rest, piece)
  if piece == rest.text then
    vim.api.nvim_buf_clear_namespace(buf, namespace, 0, -1)
  end
end

--- Follow the acceptance of a piece. What is behind it stays shown on the same line; else it comes back with the next
--- answer.
---@param buf integer
---@param rest midfill.Rest
---@param piece string
function M.advance(buf, rest, piece)
  if piece == rest.text then
    -- Neovim must forget its item, whose range does not follow what has been typed since. Its own way of accepting
    -- would do it, but later, behind the keys that have been typed meanwhile.
    vim.lsp.inline_completion.enable(false, { bufnr = buf })
    M.switched(buf)
  elseif piece:find('\n') then
    M.clear(buf)
  end
end

--- Show the next of several suggestions, asking for more than one where that has not been done.
---@param buf integer
function M.next(buf)
  if offers.turn(buf) then
    vim.lsp.inline_completion.select({ bufnr = buf, count = 1 })
  else
    buffers[buf].want_more = true
    vim.api.nvim_exec_autocmds('CursorMovedI', { buffer = buf, modeline = false })
  end
end

return M
