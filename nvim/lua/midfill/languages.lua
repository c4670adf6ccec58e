--- LSP's ids of languages by Neovim's file types, where they differ; the server knows languages by their ids.
local M = {}

local ids = {
  bash = 'shellscript',
  coffee = 'coffeescript',
  cs = 'csharp',
  cuda = 'cuda-cpp',
  dosbatch = 'bat',
  dosini = 'ini',
  eruby = 'erb',
  fortran = 'fortran-modern',
  gitcommit = 'git-commit',
  htmldjango = 'jinja-html',
  jinja = 'jinja-html',
  jproperties = 'ini',
  ksh = 'shellscript',
  make = 'makefile',
  objc = 'objective-c',
  plaintex = 'latex',
  ps1 = 'powershell',
  pug = 'jade',
  rst = 'restructuredtext',
  sh = 'shellscript',
  tex = 'latex',
  text = 'plaintext',
  zsh = 'shellscript',
  ['html.handlebars'] = 'handlebars',
  ['javascript.jsx'] = 'javascriptreact',
  ['typescript.tsx'] = 'typescriptreact',
}

--- The id for a file type; of one with several parts, such as "yaml.ansible", the first counts.
---@param filetype string
---@return string
function M.id(filetype)
  local first = filetype:match('^[^.]*')
  return ids[filetype] or ids[first] or first
end

--- The settings for the server, in which languages may be named as Neovim or as LSP does.
---@param settings table
---@return table
function M.settings(settings)
  local disabled = settings.disabledLanguages
  if not vim.islist(disabled) then
    return settings -- a wrong value is the server's to name
  end
  return vim.tbl_extend('force', settings, { disabledLanguages = vim.tbl_map(function(name)
    return type(name) == 'string' and M.id(name) or name
  end, disabled) })
end

return M
