--- Which buffers are documents of a language server, and of the server for which root.
local config = require('midfill.config')

local M = {}

local nameless ---@type integer|nil the buffer without a name that the server has, if it has one
local given_root ---@type string|fun(buf: integer, take: fun(root: string|nil))|nil `root_dir` of the user's vim.lsp.config()

---@param buf integer
---@return boolean
local function is_nameless(buf)
  return vim.api.nvim_buf_is_loaded(buf) and vim.api.nvim_buf_get_name(buf) == ''
end

---@param buf integer
---@return boolean whether it is a terminal, a help page, a folder or the like
function M.is_no_file(buf)
  return vim.bo[buf].buftype ~= '' or vim.fn.isdirectory(vim.api.nvim_buf_get_name(buf)) == 1
end

--- Have the server take a buffer with its root; not what is no file, for which Neovim itself takes help pages, nor a second
--- one without a name, as all of these have one URI.
---@param buf integer
---@param take fun(root: string|nil)
function M.with_root(buf, take)
  if M.is_no_file(buf) then
    return
  elseif is_nameless(buf) then
    nameless = nameless and is_nameless(nameless) and nameless or buf
    if nameless ~= buf then
      return
    end
  end
  if type(given_root) == 'function' then
    given_root(buf, take)
  else
    local given = vim.lsp.config and vim.lsp.config.midfill or {}
    take(given_root or vim.fs.root(buf, config.options.root_markers or given.root_markers or { '.git' }))
  end
end

--- Whether a buffer gets no server before it has a name, as another one without a name has it.
---@param buf integer
---@return boolean
function M.waits_for_name(buf)
  return is_nameless(buf) and nameless ~= buf
end

--- Whether the nameless buffer that the server has is gone, or has a name now.
---@return boolean
function M.nameless_has_left()
  return nameless ~= nil and not is_nameless(nameless)
end

--- Keep `root_dir` of the configuration, if it is the user's own.
---@param root_dir string|fun(buf: integer, take: fun(root: string|nil))|nil
function M.keep_root(root_dir)
  given_root = root_dir ~= M.with_root and root_dir or given_root
end

return M
