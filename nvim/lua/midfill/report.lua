--- Reports suggestions that are shown or accepted to the server, which counts them.
local compat = require('midfill.compat')

local M = {}

---@param suggestion midfill.Suggestion
---@param method string
---@param params table
local function notify(suggestion, method, params)
  local client = vim.lsp.get_client_by_id(suggestion.client_id)
  if client then
    compat.call(client, 'notify', method, params)
  end
end

--- Report a shown suggestion; one that continues the last one does not count.
---@param suggestion midfill.Suggestion|nil
---@param last midfill.Suggestion|nil
function M.shown(suggestion, last)
  if not suggestion or (last and vim.endswith(last.text, suggestion.text)) then
    return
  end
  notify(suggestion, 'textDocument/didShowCompletion', { item = suggestion.item })
end

--- Length of the accepted part of an item's text, in UTF-16 code units, if `left` bytes remain.
---@param text string
---@param left integer in bytes, each line end counted as one
---@return integer
local function accepted_length(text, left)
  local lines = text:gsub('\r\n', '\n')
  local accepted = lines:sub(1, #lines - left)
  if lines ~= text then
    accepted = accepted:gsub('\n', '\r\n')
  end
  local _, utf16_units = vim.str_utfindex(accepted)
  return utf16_units
end

--- Report the acceptance of a piece; `rest` is the rest before the acceptance.
---@param suggestion midfill.Suggestion
---@param rest midfill.Rest
---@param piece string
function M.accepted(suggestion, rest, piece)
  if piece ~= rest.text then
    notify(suggestion, 'textDocument/didPartiallyAcceptCompletion', {
      item = suggestion.item,
      acceptedLength = accepted_length(suggestion.item.insertText, #rest.text - #piece),
    })
  elseif suggestion.item.command then
    local client = vim.lsp.get_client_by_id(suggestion.client_id)
    if client then
      compat.call(client, 'request', 'workspace/executeCommand', {
        command = suggestion.item.command.command,
        arguments = suggestion.item.command.arguments,
      }, function() end)
    end
  end
end

return M
