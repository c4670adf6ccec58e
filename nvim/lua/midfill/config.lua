--- The options of setup(): defaults and validation.
local M = {}

---@class midfill.Keys
---@field accept string|string[]|false
---@field accept_word string|string[]|false
---@field accept_line string|string[]|false
---@field next string|string[]|false
---@field dismiss string|string[]|false
---@field edit string|string[]|false in normal mode: jump to the next edit, or apply it
---@field imports string|string[]|false in both modes: add the imports that accepted text lacks

---@class midfill.Options
---@field cmd string[] the command that runs the language server; by default that of the clone the plugin is in
---@field filetypes string[]|nil where midfill works; nil for every file
---@field root_markers string[]|nil names of files and folders that mark a project's root; nil for those of vim.lsp.config()
---@field settings table the server's settings, as docs/settings.md has them
---@field keys midfill.Keys keys in insert mode, but for `edit`, and `imports` in normal mode too; if no suggestion is shown, a key does what it was mapped to before setup()

--- The command of the clone that the plugin is in, if `make install` has created it; otherwise the one on the PATH.
---@return string
local function command()
  local clone = vim.fn.fnamemodify(debug.getinfo(1, 'S').source:sub(2), ':p:h:h:h:h')
  local path = clone .. (vim.fn.has('win32') == 1 and '/.venv/Scripts/midfill.exe' or '/.venv/bin/midfill')
  return vim.fn.executable(path) == 1 and path or 'midfill'
end

---@type midfill.Options
local defaults = {
  cmd = { command(), 'lsp' },
  filetypes = nil,
  root_markers = nil,
  settings = {},
  keys = {
    accept = { '<M-l>', '<C-l>' }, -- macOS terminals may send no Alt
    accept_word = '<M-Right>',
    accept_line = '<M-C-Right>',
    next = '<M-]>',
    dismiss = '<C-]>',
    edit = '<M-l>',
    imports = '<M-i>',
  },
}

--- The defaults of setup().
---@return midfill.Options
function M.defaults()
  return vim.deepcopy(defaults)
end

---@type midfill.Options
M.options = M.defaults()

--- Another command of midfill, by the command that runs the language server.
---@param name string
---@return string[]
function M.another(name)
  local words = {}
  for _, word in ipairs(M.options.cmd) do
    if word == 'lsp' then
      break
    end
    table.insert(words, word)
  end
  return vim.list_extend(words, { name })
end

local types = {
  cmd = 'table',
  filetypes = 'table',
  root_markers = 'table',
  settings = 'table',
  keys = 'table',
}

---@param condition any
---@param message string
local function check(condition, message)
  if not condition then
    error('midfill: ' .. message, 0)
  end
end

---@param given table|nil
local function validate(given)
  for name, value in pairs(given) do
    local expected = types[name]
    local known = table.concat(vim.fn.sort(vim.tbl_keys(types)), ', ')
    check(expected, ('unknown option %q: choose one of %s'):format(name, known))
    check(type(value) == expected, ('option %q must be a %s, not a %s'):format(name, expected, type(value)))
  end
  for name, key in pairs(given.keys or {}) do
    check(defaults.keys[name] ~= nil, ('option "keys" has no key %q'):format(name))
    local strings = vim.iter(type(key) == 'table' and key or { key or nil }):all(function(each)
      return type(each) == 'string'
    end)
    check(strings and key ~= true, ('option "keys.%s" must be a string, a list of strings, or false'):format(name))
  end
end

--- Set the user's options; an error names the first invalid one, and the options stay unchanged.
---@param given table|nil
function M.set(given)
  given = given or {}
  validate(given)
  M.options = vim.tbl_deep_extend('force', defaults, given)
end

return M
