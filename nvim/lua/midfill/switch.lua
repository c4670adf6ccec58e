--- Whether midfill suggests: for all buffers, and for each; the server learns it, since it words every reason.
local client_of = require('midfill.client').of
local compat = require('midfill.compat')
local config = require('midfill.config')

local M = {}

-- Plugins that show inline suggestions of their own, by what they leave behind once they are loaded.
local RIVALS = {
  { 'Copilot', function() return package.loaded['copilot'] or vim.g.loaded_copilot end },
  { 'Windsurf', function() return package.loaded['codeium'] or vim.g.loaded_codeium end },
  { 'Supermaven', function() return package.loaded['supermaven-nvim'] end },
  { 'Tabnine', function() return package.loaded['tabnine'] end },
  { 'Tabby', function() return vim.g.loaded_tabby end },
  { 'llama.vim', function() return vim.g.loaded_llama end },
  { 'minuet', function() return package.loaded['minuet'] end },
}

local all = true

--- What suggestions are switched off in: 'editor', or else 'buffer'; nil if they are on.
---@param buf integer
---@return string|nil
function M.off(buf)
  return not all and 'editor' or vim.b[buf].midfill_enabled == false and 'buffer' or nil
end

---@param buf integer
---@return boolean
function M.on(buf)
  return M.off(buf) == nil
end

--- Whether suggestions come without being asked for.
---@param buf integer
---@return boolean
function M.automatic(buf)
  return M.on(buf) and config.options.settings.automatic ~= false
end

--- Switch suggestions on or off; `buf` nil means everywhere.
---@param on boolean
---@param buf integer|nil
function M.set(on, buf)
  if buf then
    vim.b[buf].midfill_enabled = on
  else
    all = on
  end
end

--- Tell the server what switches suggestions off in this buffer, and which other plugins suggest.
---@param buf integer
function M.announce(buf)
  local client = client_of(buf)
  if client then
    local rivals = {}
    for _, rival in ipairs(RIVALS) do
      if rival[2]() then
        table.insert(rivals, rival[1])
      end
    end
    compat.call(client, 'notify', 'midfill/didSwitch', {
      textDocument = vim.lsp.util.make_text_document_params(buf),
      off = M.off(buf),
      rivals = rivals,
    })
  end
end

return M
