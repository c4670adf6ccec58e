--- The options of setup(): their defaults, and errors that name what is wrong.
local M = {}

---@class midfill.Keys
---@field accept string|false
---@field accept_word string|false
---@field accept_line string|false
---@field next string|false
---@field dismiss string|false

---@class midfill.Options
---@field cmd string[] the command that runs the language server
---@field filetypes string[]|nil where midfill works; nil for every file
---@field root_markers string[] what tells a project's root
---@field settings table the server's settings, as docs/settings.md has them
---@field ghost_text 'auto'|'builtin'|'own' who asks and draws: Neovim's vim.lsp.inline_completion, or this plugin
---@field keys midfill.Keys keys in insert mode; where nothing is shown, a key does what it does without midfill

---@type midfill.Options
local defaults = {
  cmd = { 'midfill', 'lsp' },
  filetypes = nil,
  root_markers = { '.git' },
  settings = {},
  ghost_text = 'auto',
  keys = {
    accept = '<M-l>',
    accept_word = '<M-Right>',
    accept_line = '<M-C-Right>',
    next = '<M-]>',
    dismiss = '<C-]>',
  },
}

---@type midfill.Options
M.options = vim.deepcopy(defaults)

local types = {
  cmd = 'table',
  filetypes = 'table',
  root_markers = 'table',
  settings = 'table',
  ghost_text = 'string',
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
    check(expected, ('setup() knows no option %q; there are %s'):format(name, known))
    check(type(value) == expected, ('option %q must be a %s, not a %s'):format(name, expected, type(value)))
  end
  for name, key in pairs(given.keys or {}) do
    check(defaults.keys[name] ~= nil, ('option "keys" knows no %q'):format(name))
    check(key == false or type(key) == 'string', ('option "keys.%s" must be a string, or false'):format(name))
  end
end

--- Take the options of the user; an error names the first that cannot be used, and none is taken.
---@param given table|nil
function M.set(given)
  given = given or {}
  validate(given)
  local options = vim.tbl_deep_extend('force', defaults, given)
  local ghost_text = options.ghost_text
  check(
    vim.list_contains({ 'auto', 'builtin', 'own' }, ghost_text),
    ('option "ghost_text" is %q; it may be "auto", "builtin" or "own"'):format(ghost_text)
  )
  check(
    ghost_text ~= 'builtin' or vim.lsp.inline_completion,
    'option "ghost_text": Neovim has no vim.lsp.inline_completion before 0.12'
  )
  M.options = options
end

return M
