--- Shows next edits at rest: asks for one, draws what goes and what comes, and jumps to it or applies it.
local client_of = require('midfill.client').of
local compat = require('midfill.compat')
local ghost = require('midfill.ghost')
local offers = require('midfill.offers')
local suggestions = require('midfill.suggestion')
local switch = require('midfill.switch')

local M = {}

local METHOD = 'textDocument/copilotInlineEdit'
local ACCEPTED, REFUSED = 'midfill.nextEditAccepted', 'midfill.nextEditRefused'
local REST_MS = { n = 100, i = 300 } -- while inserting, ghost text comes first

local SELECTION_MS = 5000 -- for so long after a selection of several lines nothing is asked

-- Whether a plugin shows a popup, or is in a snippet.
local PLUGINS = { cmp = 'visible', ['blink.cmp'] = 'is_visible', luasnip = 'in_snippet' }

---@class midfill.EditPlace
---@field text string
---@field first integer row, from 0
---@field last integer
---@field from integer byte columns
---@field to integer

---@class midfill.NextEdit: midfill.EditPlace
---@field edit table the server's
---@field client_id integer
---@field tick integer of the buffer
---@field parts midfill.EditPlace[]

local namespace = vim.api.nvim_create_namespace('midfill.next_edit')
local timer = assert(vim.uv.new_timer())
local shown = {} ---@type table<integer, midfill.NextEdit> by buffer
local request = 0 -- number of the newest request
local selected = -SELECTION_MS -- when several lines were selected last

---@return 'n'|'i'|nil the mode, if it is one that shows next edits in the current buffer
local function resting()
  local mode = vim.api.nvim_get_mode().mode
  return (mode == 'n' or mode == 'i') and vim.bo.modifiable and mode or nil
end

---@return boolean whether the user is in the middle of something that an edit would disturb
local function busy()
  for name, shows in pairs(PLUGINS) do
    local plugin = package.loaded[name]
    local known, yes = pcall(function()
      return plugin[shows]()
    end)
    if known and yes then
      return true
    end
  end
  local in_snippet = vim.snippet and vim.snippet.active()
  local recording = vim.fn.reg_recording() ~= '' -- the edit would not be there when the macro is replayed
  return vim.fn.pumvisible() == 1 or in_snippet or recording or vim.uv.now() - selected < SELECTION_MS
end

--- The edit that is shown in a buffer and still fits its text.
---@param buf integer
---@return midfill.NextEdit|nil
local function current(buf)
  local next_edit = shown[buf]
  local fits = next_edit and vim.api.nvim_get_current_buf() == buf and resting()
  return fits and next_edit.tick == vim.api.nvim_buf_get_changedtick(buf) and next_edit or nil
end

--- Whether an edit is shown in this buffer.
---@param buf integer
---@return boolean
function M.visible(buf)
  return current(buf) ~= nil
end

--- Hide the edit; the server keeps it while it holds.
---@param buf integer
function M.hide(buf)
  request = request + 1
  if shown[buf] then
    shown[buf] = nil
    if vim.api.nvim_buf_is_valid(buf) then
      vim.api.nvim_buf_clear_namespace(buf, namespace, 0, -1)
    end
  end
end

---@param next_edit midfill.NextEdit
---@return boolean whether its first line is within a closed fold
local function folded(next_edit)
  return vim.fn.foldclosed(next_edit.first + 1) ~= -1
end

---@param buf integer
---@param next_edit midfill.NextEdit
local function draw(buf, next_edit)
  vim.api.nvim_buf_clear_namespace(buf, namespace, 0, -1)
  compat.show_here(namespace)
  local function mark(row, col, details)
    vim.api.nvim_buf_set_extmark(buf, namespace, row, col, details)
  end
  for _, part in ipairs(next_edit.parts) do
    local lines = vim.split(part.text, '\n', { plain = true })
    if part.first ~= part.last or part.from ~= part.to then
      for _, group in ipairs({ 'MidfillEditOld', 'MidfillEditStruck' }) do -- a link has no attribute of its own
        mark(part.first, part.from, { end_row = part.last, end_col = part.to, hl_group = group })
      end
    end
    if lines[1] ~= '' or #lines == 1 then -- lines above the first one would be out of sight
      local text = ghost.expand_tabs(table.concat(lines, '⏎'), vim.fn.virtcol({ part.last + 1, part.to }))
      mark(part.last, part.to, { virt_text = { { text, 'MidfillEditNew' } }, virt_text_pos = 'inline' })
    else -- whole lines, below theirs
      table.remove(lines, 1)
      local virtual = vim.tbl_map(function(line)
        return { { ghost.expand_tabs(line, 0), 'MidfillEditNew' } }
      end, lines)
      mark(part.last, 0, { virt_lines = virtual })
    end
  end
  if next_edit.first < vim.fn.line('w0') - 1 or next_edit.first > vim.fn.line('w$') - 1 or folded(next_edit) then
    local row = vim.api.nvim_win_get_cursor(0)[1] - 1
    local text = (' next edit in line %d'):format(next_edit.first + 1)
    mark(row, 0, { virt_text = { { text, 'MidfillGhost' } }, virt_text_pos = 'eol' }) -- none of the text that comes
  end
end

--- Where an edit or a part of one is in a buffer.
---@param buf integer
---@param client vim.lsp.Client
---@param edit {text: string, range: table}
---@return midfill.EditPlace
local function located(buf, client, edit)
  local first, last = edit.range.start, edit.range['end']
  local function column(at)
    local line = vim.api.nvim_buf_get_lines(buf, at.line, at.line + 1, false)[1] or ''
    return compat.byte_column(line, at.character, client.offset_encoding)
  end
  local count = vim.api.nvim_buf_line_count(buf)
  local to = column(last)
  if last.line >= count then -- behind the last line end
    last = { line = count - 1 }
    to = #vim.api.nvim_buf_get_lines(buf, count - 1, count, false)[1]
  end
  local row = math.min(first.line, count - 1)
  return { text = (edit.text:gsub('\r\n', '\n')), first = row, last = last.line, from = column(first), to = to }
end

---@param buf integer
---@param client vim.lsp.Client
---@param edit table
local function show(buf, client, edit)
  M.hide(buf)
  shown[buf] = vim.tbl_extend('error', located(buf, client, edit), {
    edit = edit,
    client_id = client.id,
    tick = vim.api.nvim_buf_get_changedtick(buf),
    parts = vim.tbl_map(function(part)
      return located(buf, client, part)
    end, edit.parts),
  })
  draw(buf, shown[buf])
  compat.call(client, 'notify', 'textDocument/didShowInlineEdit', { item = { command = edit.command } })
end

---@param client vim.lsp.Client
---@param name string
---@return boolean
local function offers_command(client, name)
  return vim.list_contains(vim.tbl_get(client, 'server_capabilities', 'executeCommandProvider', 'commands') or {}, name)
end

---@param buf integer
---@param invoked boolean
local function ask(buf, invoked)
  local client = client_of(buf)
  local wanted = client and offers_command(client, ACCEPTED) and (invoked or switch.automatic(buf) and not busy())
  if vim.api.nvim_get_current_buf() ~= buf or not wanted or not resting() or offers.rest(buf) then
    return
  end
  local place = offers.place(buf)
  request = request + 1
  local number = request
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.textDocument.version = vim.lsp.util.buf_versions[buf]
  params.context = { triggerKind = invoked and 1 or 2 }
  compat.call(client, 'request', METHOD, params, function(err, result)
    local here = vim.api.nvim_get_current_buf() == buf and resting()
    if number ~= request or not here or offers.place(buf) ~= place or offers.rest(buf) then
      return
    end
    local edit = not err and result and (result.edits or {})[1]
    if edit then
      show(buf, client, edit)
    else
      M.hide(buf)
    end
  end, buf)
end

--- Ask once the user has rested.
---@param buf integer
function M.ask_soon(buf)
  local mode = resting()
  if mode then
    timer:start(REST_MS[mode], 0, vim.schedule_wrap(function()
      if vim.api.nvim_buf_is_valid(buf) then
        ask(buf, false)
      end
    end))
  end
end

--- Ask now, for the user, whatever the gate says.
function M.ask()
  ask(vim.api.nvim_get_current_buf(), true)
end

---@param next_edit midfill.NextEdit
---@param command string
local function tell(next_edit, command)
  local client = vim.lsp.get_client_by_id(next_edit.client_id)
  if client then
    local params = { command = command, arguments = next_edit.edit.command.arguments }
    compat.call(client, 'request', 'workspace/executeCommand', params, function() end)
  end
end

--- Jump to the edit, or apply it if the cursor is there; false if none is shown.
---@return boolean
function M.go()
  local buf = vim.api.nvim_get_current_buf()
  local next_edit = current(buf)
  if not next_edit then
    return false
  end
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  if row < next_edit.first or row > next_edit.last or folded(next_edit) then
    vim.cmd("normal! m'")
    vim.api.nvim_win_set_cursor(0, { next_edit.first + 1, next_edit.from })
    vim.cmd('normal! zv')
    draw(buf, next_edit) -- which is in sight now
    return true
  end
  M.hide(buf)
  local changed = next_edit.parts[#next_edit.parts] or next_edit -- in whole words: the edit may end within one
  local below = vim.api.nvim_buf_line_count(buf) - changed.last
  local behind = vim.fn.col({ changed.last + 1, '$' }) - changed.to
  local client = vim.lsp.get_client_by_id(next_edit.client_id)
  vim.bo[buf].undolevels = vim.bo[buf].undolevels -- an undo step of its own
  local edit = { range = next_edit.edit.range, newText = next_edit.edit.text }
  vim.lsp.util.apply_text_edits({ edit }, buf, client and client.offset_encoding or 'utf-16')
  local row = vim.api.nvim_buf_line_count(buf) - below + 1
  vim.api.nvim_win_set_cursor(0, { row, vim.fn.col({ row, '$' }) - behind })
  if resting() == 'i' then
    suggestions.end_undo_step()
  end
  tell(next_edit, ACCEPTED)
  M.ask_soon(buf)
  return true
end

--- Refuse the edit: nothing like it is offered again; false if none is shown.
---@return boolean
function M.refuse()
  local buf = vim.api.nvim_get_current_buf()
  local next_edit = current(buf)
  if next_edit then
    M.hide(buf)
    tell(next_edit, REFUSED)
  end
  return next_edit ~= nil
end

--- Start offering edits in this buffer.
---@param buf integer
function M.attach(buf)
  local group = vim.api.nvim_create_augroup('midfill.next_edit.' .. buf, {})
  local function on(events, callback)
    vim.api.nvim_create_autocmd(events, { group = group, buffer = buf, callback = callback })
  end
  on({ 'TextChanged', 'TextChangedI', 'TextChangedP', 'InsertEnter' }, function()
    M.hide(buf)
    M.ask_soon(buf)
  end)
  on({ 'CursorMoved', 'InsertLeave' }, function()
    vim.schedule(function() -- the mode changes after the event
      M.ask_soon(buf)
    end)
  end)
  on({ 'BufLeave', 'WinLeave' }, function() -- another window on the buffer asks again
    M.hide(buf)
  end)
  vim.api.nvim_create_autocmd('ModeChanged', {
    group = group,
    pattern = '[vV\22]*:*',
    callback = function()
      if vim.fn.line("'<") ~= vim.fn.line("'>") then
        selected = vim.uv.now()
      end
    end,
  })
end

---@param buf integer
function M.detach(buf)
  pcall(vim.api.nvim_del_augroup_by_name, 'midfill.next_edit.' .. buf)
  M.hide(buf)
end

return M
