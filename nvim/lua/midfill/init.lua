--- The public functions, for users and their mappings.
local client = require('midfill.client')
local config = require('midfill.config')
local hints = require('midfill.hints')
local imports = require('midfill.imports')
local keys = require('midfill.keys')
local next_edit = require('midfill.next_edit')
local offers = require('midfill.offers')
local report = require('midfill.report')
local state = require('midfill.state')
local suggestions = require('midfill.suggestion')
local surface = require('midfill.surface')
local switch = require('midfill.switch')

local M = {}

local function follow_clients()
  local group = vim.api.nvim_create_augroup('midfill.attach', {})
  vim.api.nvim_create_autocmd('LspAttach', {
    group = group,
    callback = function(event)
      local attached = vim.lsp.get_client_by_id(event.data.client_id)
      if attached and attached.name == client.NAME then
        surface.attach(event.buf)
        next_edit.attach(event.buf)
        keys.attach(event.buf)
        switch.announce(event.buf)
      end
    end,
  })
  vim.api.nvim_create_autocmd('LspDetach', {
    group = group,
    callback = function(event)
      local detached = vim.lsp.get_client_by_id(event.data.client_id)
      if detached and detached.name == client.NAME then
        surface.detach(event.buf)
        next_edit.detach(event.buf)
        state.set_usage(event.buf, nil)
        state.set_reason(detached.id, event.buf, nil)
      end
    end,
  })
end

---@return table<string, fun(): boolean> by the name of the action: whether it has something to do
local function usable()
  local all = {}
  local function accept() -- a key that comes before what the user asked for must not become text
    return M.visible() or surface.awaits(vim.api.nvim_get_current_buf())
  end
  for _, name in ipairs({ 'accept', 'accept_word', 'accept_line', 'dismiss' }) do
    all[name] = accept
  end
  for _, name in ipairs({ 'accept', 'dismiss' }) do
    all[name] = function()
      return accept() or next_edit.visible(vim.api.nvim_get_current_buf())
    end
  end
  function all.next()
    return client.of(vim.api.nvim_get_current_buf()) ~= nil
  end
  function all.edit()
    return next_edit.visible(vim.api.nvim_get_current_buf())
  end
  all.imports = imports.ready
  return all
end

--- Start midfill, or change its options. See |midfill-options|.
---@param options midfill.Options|nil
function M.setup(options)
  config.set(options)
  client.refresh, client.hide = surface.refresh, surface.clear
  follow_clients()
  keys.setup(config.options.keys, usable())
  client.each_buffer(keys.attach)
  hints.setup()
  require('midfill.moves').setup()
  require('midfill.models').setup()
  client.setup()
end

--- Insert a piece of the suggestion; false if none is shown.
---@param piece_of fun(text: string): string
---@return boolean
local function accept(piece_of)
  local buf = vim.api.nvim_get_current_buf()
  local rest = offers.rest(buf)
  if not rest then
    return false
  end
  local suggestion = offers.current(buf)
  local piece = piece_of(rest.text)
  surface.shrink(buf, rest, piece)
  suggestions.insert(buf, rest, piece, function()
    offers.advance(buf, rest, piece)
    surface.advance(buf, rest, piece)
    imports.accepted(buf, rest.row, rest.col)
    report.accepted(suggestion, rest, piece)
  end)
  return true
end

--- Accept the suggestion, or jump to the next edit that is shown or apply it; false if neither is shown.
---@return boolean
function M.accept()
  return accept(function(text)
    return text
  end) or next_edit.go()
end

--- Accept the suggestion's next word; false if none is shown.
---@return boolean
function M.accept_word()
  return accept(suggestions.first_word)
end

--- Accept the suggestion's next line; false if none is shown.
---@return boolean
function M.accept_line()
  return accept(suggestions.first_line)
end

--- Show the next suggestion, or request one; false if the buffer has no server.
---@return boolean
function M.next()
  local buf = vim.api.nvim_get_current_buf()
  if not client.of(buf) then
    return false
  end
  surface.next(buf)
  return true
end

--- Hide the suggestion until the text or the cursor changes, or refuse the next edit; false if neither is shown.
---@return boolean
function M.dismiss()
  if not M.visible() then
    return next_edit.refuse()
  end
  surface.dismiss(vim.api.nvim_get_current_buf())
  return true
end

--- Add the imports that the text accepted last lacks; false if there is none in this buffer.
---@return boolean
function M.add_imports()
  return imports.add()
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
  client.each_buffer(function(each)
    surface.switched(each)
    switch.announce(each)
  end)
end

--- Switch suggestions on; `buf` nil means everywhere.
---@param buf integer|nil
function M.enable(buf)
  set_switch(true, buf)
end

--- Switch suggestions off; `buf` nil means everywhere.
---@param buf integer|nil
function M.disable(buf)
  set_switch(false, buf)
end

--- Change settings of the running server; docs/settings.md lists them.
---@param settings table
function M.configure(settings)
  client.configure(settings)
end

--- Text for the status line: the state, or why nothing is suggested.
---@return string
function M.statusline()
  hints.status_line_is_drawn()
  local buf = vim.api.nvim_get_current_buf()
  local attached = client.of(buf)
  if not attached then
    local text = client.absence(buf)
    return text ~= '' and 'midfill ' .. text or ''
  end
  local reason = state.reason(attached.id, buf)
  if reason and (reason.lasts or reason.kind == 'unloaded') then
    return 'midfill ' .. reason.text
  end
  return state.status(attached.id) and 'midfill' or 'midfill …'
end

return M
