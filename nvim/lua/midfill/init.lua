--- What users and their maps call.
local client = require('midfill.client')
local config = require('midfill.config')
local offers = require('midfill.offers')
local report = require('midfill.report')
local state = require('midfill.state')
local stats = require('midfill.stats')
local suggestions = require('midfill.suggestion')
local switch = require('midfill.switch')

local M = {}

local surface ---@type table|nil midfill.builtin or midfill.own, once set up

---@return boolean
local function use_builtin()
  local ghost_text = config.options.ghost_text
  return ghost_text == 'builtin' or (ghost_text == 'auto' and vim.lsp.inline_completion ~= nil)
end

local function map_keys()
  for name, key in pairs(config.options.keys) do
    if key then
      vim.keymap.set('i', key, function()
        if not M[name]() then
          vim.api.nvim_feedkeys(vim.keycode(key), 'ni', false)
        end
      end, { desc = 'midfill: ' .. name:gsub('_', ' ') })
    end
  end
end

local function follow_clients()
  local group = vim.api.nvim_create_augroup('midfill.attach', {})
  vim.api.nvim_create_autocmd('LspAttach', {
    group = group,
    callback = function(event)
      local attached = vim.lsp.get_client_by_id(event.data.client_id)
      if attached and attached.name == client.NAME then
        surface.attach(event.buf)
      end
    end,
  })
  vim.api.nvim_create_autocmd('LspDetach', {
    group = group,
    callback = function(event)
      local detached = vim.lsp.get_client_by_id(event.data.client_id)
      if detached and detached.name == client.NAME then
        surface.detach(event.buf)
        state.set_usage(event.buf, nil)
      end
    end,
  })
end

--- Start midfill. See |midfill-options|.
---@param options midfill.Options|nil
function M.setup(options)
  if surface then
    error('midfill: setup() has been called before', 0)
  end
  config.set(options)
  local builtin = use_builtin()
  surface = require(builtin and 'midfill.builtin' or 'midfill.own')
  follow_clients()
  map_keys()
  require('midfill.moves').setup()
  client.setup(builtin and surface.wrap_rpc or nil)
end

--- Insert a piece of what is shown; false where nothing is.
---@param how 'accept'|'accept_word'|'accept_line'
---@param piece_of fun(text: string): string
---@return boolean
local function accept(how, piece_of)
  local buf = vim.api.nvim_get_current_buf()
  local rest = offers.rest(buf)
  if not rest then
    return false
  end
  local suggestion = offers.current(buf)
  local piece = piece_of(rest.text)
  surface.insert(buf, rest, piece)
  report.accepted(suggestion, rest, piece, how)
  return true
end

--- Accept the suggestion; false where none is shown.
---@return boolean
function M.accept()
  return accept('accept', function(text)
    return text
  end)
end

--- Accept its next word; false where none is shown.
---@return boolean
function M.accept_word()
  return accept('accept_word', suggestions.first_word)
end

--- Accept its next line; false where none is shown.
---@return boolean
function M.accept_line()
  return accept('accept_line', suggestions.first_line)
end

--- Show the next suggestion, asking for alternatives; false where midfill does not suggest.
---@return boolean
function M.next()
  local buf = vim.api.nvim_get_current_buf()
  if not surface or not client.of(buf) or not switch.on(buf) then
    return false
  end
  surface.next(buf)
  return true
end

--- Hide the suggestion until the text or the cursor changes; false where none is shown.
---@return boolean
function M.dismiss()
  if not M.visible() then
    return false
  end
  stats.count('dismiss')
  surface.dismiss(vim.api.nvim_get_current_buf())
  return true
end

--- Whether a suggestion is shown at the cursor.
---@return boolean
function M.visible()
  return offers.rest(vim.api.nvim_get_current_buf()) ~= nil
end

---@param on boolean
---@param buf integer|nil
local function set_switch(on, buf)
  switch.set(on, buf)
  for _, attached in ipairs(client.all()) do
    for each in pairs(attached.attached_buffers) do
      surface.switched(each)
    end
  end
end

--- Suggest again; `buf` nil means everywhere.
---@param buf integer|nil
function M.enable(buf)
  set_switch(true, buf)
end

--- Suggest no more; `buf` nil means everywhere.
---@param buf integer|nil
function M.disable(buf)
  set_switch(false, buf)
end

--- Change the server's settings while it runs, as docs/settings.md has them.
---@param settings table
function M.configure(settings)
  client.configure(settings)
end

--- A few words for the status line: the core's state, then what the last suggestion took.
---@return string
function M.statusline()
  local buf = vim.api.nvim_get_current_buf()
  local attached = client.of(buf)
  if not attached then
    return ''
  elseif not switch.on(buf) then
    return 'midfill off'
  end
  local status, usage = state.status(attached.id), state.usage(buf)
  if not status then
    return 'midfill …'
  elseif status.state ~= 'ready' then
    local percent = type(status.progress) == 'number' and (' %d %%'):format(status.progress * 100) or ''
    return 'midfill ' .. status.state .. percent
  elseif usage then
    return ('midfill %d ms %s'):format(math.floor(usage.ms + 0.5), usage.heat)
  end
  return 'midfill'
end

return M
