--- Tells the server where the cursor goes without an edit, and what is looked at, so that it can prepare.
local client_of = require('midfill.client').of
local compat = require('midfill.compat')
local switch = require('midfill.switch')

local M = {}

-- The cursor often goes past a place; the server hears of where it stays. Edits are sent sooner (midfill.client).
local REST_MS = 60

local timer = assert(vim.uv.new_timer())
local told ---@type string|nil

---@param method string
---@param params_of fun(client: vim.lsp.Client, buf: integer): table
local function tell(method, params_of)
  local buf = vim.api.nvim_get_current_buf()
  local client = client_of(buf)
  if client and switch.on(buf) then
    compat.call(client, 'notify', method, params_of(client, buf))
  end
end

local function moved()
  if vim.api.nvim_get_mode().mode:sub(1, 1) == 'i' then
    return -- the request for a suggestion tells the same
  end
  local buf = vim.api.nvim_get_current_buf()
  local place = table.concat({ buf, unpack(vim.api.nvim_win_get_cursor(0)) }, ':')
  if place ~= told then
    told = place
    tell('midfill/didMoveCursor', function(client)
      return vim.lsp.util.make_position_params(0, client.offset_encoding)
    end)
  end
end

local function focused()
  tell('textDocument/didFocus', function(_, buf)
    return { textDocument = vim.lsp.util.make_text_document_params(buf) }
  end)
end

function M.setup()
  local group = vim.api.nvim_create_augroup('midfill.moves', {})
  vim.api.nvim_create_autocmd('CursorMoved', {
    group = group,
    callback = function()
      timer:start(REST_MS, 0, vim.schedule_wrap(moved))
    end,
  })
  vim.api.nvim_create_autocmd({ 'BufEnter', 'FocusGained' }, { group = group, callback = focused })
end

return M
