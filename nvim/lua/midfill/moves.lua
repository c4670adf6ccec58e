--- Sends cursor moves and viewed documents to the server, so that it can prefetch.
local client_of = require('midfill.client').of
local compat = require('midfill.compat')
local switch = require('midfill.switch')

local M = {}

-- Debounce: the server only gets places where the cursor stays. Edits are sent sooner (midfill.client).
local REST_MS = 60

local timer = assert(vim.uv.new_timer())
local sent ---@type string|nil the last announced place

---@param method string
---@param params_of fun(client: vim.lsp.Client, buf: integer): table
---@return boolean whether there is a server that wants it
local function send(method, params_of)
  local buf = vim.api.nvim_get_current_buf()
  local client = client_of(buf)
  if not (client and switch.on(buf)) then
    return false
  end
  compat.call(client, 'notify', method, params_of(client, buf))
  return true
end

local function moved()
  if vim.api.nvim_get_mode().mode:sub(1, 1) == 'i' then
    return -- the request for a suggestion has the same information
  end
  local buf = vim.api.nvim_get_current_buf()
  local place = table.concat({ buf, unpack(vim.api.nvim_win_get_cursor(0)) }, ':')
  if place == sent then
    return
  end
  local was_sent = send('midfill/didMoveCursor', function(client)
    return vim.lsp.util.make_position_params(0, client.offset_encoding)
  end)
  sent = was_sent and place or nil
end

local function moved_soon()
  timer:start(REST_MS, 0, vim.schedule_wrap(moved))
end

local function focused()
  switch.announce(vim.api.nvim_get_current_buf())
  send('textDocument/didFocus', function(_, buf)
    return { textDocument = vim.lsp.util.make_text_document_params(buf) }
  end)
end

function M.setup()
  local group = vim.api.nvim_create_augroup('midfill.moves', {})
  vim.api.nvim_create_autocmd('CursorMoved', {
    group = group,
    callback = moved_soon,
  })
  vim.api.nvim_create_autocmd('LspAttach', { -- the server has started after the last move
    group = group,
    callback = function(event)
      local client = client_of(event.buf)
      if client and client.id == event.data.client_id then
        sent = nil
        moved_soon()
      end
    end,
  })
  vim.api.nvim_create_autocmd({ 'BufEnter', 'FocusGained' }, { group = group, callback = focused })
end

return M
