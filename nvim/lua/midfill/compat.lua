--- What differs between Neovim 0.10 and 0.12, and between Neovim's text and LSP's.
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

--- Show the marks of a namespace in the current window alone, of those on its buffer. Neovim has this from 0.11 on, as an
--- experiment; without it, all windows on the buffer show them.
---@param namespace integer
function M.show_here(namespace)
  pcall(vim.api.nvim__ns_set, namespace, { wins = { vim.api.nvim_get_current_win() } })
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

--- A buffer's text without what LSP has another meaning for, or none, and with all places as they were. A carriage return
--- within a line ends it for LSP, and not for Neovim, except in the file format "mac"; bytes that are no UTF-8 are no text.
---@param text string with the line ends of the file format
---@param format string
---@return string
function M.readable(text, format)
  if format ~= 'mac' then
    text = text:gsub('\r(\n?)', function(line_end)
      return (format == 'dos' and line_end ~= '' and '\r' or ' ') .. line_end
    end)
  end
  return (text:gsub('[\128-\255]+', function(bytes)
    local starts = vim.str_utf_pos(bytes)
    table.insert(starts, #bytes + 1)
    local characters = {}
    for i = 1, #starts - 1 do
      local character = bytes:sub(starts[i], starts[i + 1] - 1)
      characters[i] = #character == 1 and '?' or character
    end
    return table.concat(characters)
  end))
end

return M
