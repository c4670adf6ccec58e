--- Functions whose names or arguments differ between Neovim 0.10 and 0.12.
local M = {}

local methods_take_self = vim.fn.has('nvim-0.11') == 1

--- Call a client's method: before 0.11 it takes no `self`.
---@param client vim.lsp.Client
---@param method string
function M.call(client, method, ...)
  if methods_take_self then
    return client[method](client, ...)
  end
  return client[method](...)
end

--- The byte column (from 0) of an LSP character in a line.
---@param line string
---@param character integer
---@param encoding string
---@return integer
function M.byte_column(line, character, encoding)
  if encoding == 'utf-8' then
    return math.min(character, #line)
  elseif methods_take_self then
    return vim.str_byteindex(line, encoding, character, false)
  end
  local units, utf16_units = vim.str_utfindex(line)
  local utf16 = encoding == 'utf-16'
  return vim.str_byteindex(line, math.min(character, utf16 and utf16_units or units), utf16)
end

return M
