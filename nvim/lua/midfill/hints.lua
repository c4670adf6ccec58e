--- Tells behind the cursor's line that nothing is suggested, where no status line shows statusline(), while the user
--- inserts: until the core is ready, or once per buffer and kind of any other reason. A message would not be seen: "-- INSERT --" replaces it.
local client_of = require('midfill.client').of
local compat = require('midfill.compat')
local state = require('midfill.state')
local switch = require('midfill.switch')

local M = {}

-- Kinds of reasons that end without the user, which are told until then, and the others. Those that are missing here are
-- the user's own doing, or end at once.
local ENDS_BY_ITSELF = { starting = true, loading = true }
local TOLD = { excluded = true, off = true, long = true, lost = true, stopped = true, failed = true }

local SHOWN_MS = 10000 -- of the others

local namespace = vim.api.nvim_create_namespace('midfill.hint')
local timer = assert(vim.uv.new_timer())
local drawn = false -- whether a status line has shown statusline()
local told = {} ---@type table<string, boolean> what was told: buffer and kind
local shown ---@type {buf: integer, row: integer, text: string, what: string|nil}|nil what is shown now, and where

--- A status line shows the reasons from now on.
function M.status_line_is_drawn()
  drawn = true
end

local function clear()
  if shown then
    timer:stop()
    if vim.api.nvim_buf_is_valid(shown.buf) then
      vim.api.nvim_buf_clear_namespace(shown.buf, namespace, 0, -1)
    end
    shown = nil
  end
end

---@param buf integer
---@param text string
---@param what string|nil what is told once
local function show(buf, text, what)
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  compat.show_here(namespace)
  vim.api.nvim_buf_set_extmark(buf, namespace, row, 0, {
    virt_text = { { '  ' .. text, 'MidfillHint' } },
    virt_text_pos = 'eol',
    hl_mode = 'combine',
  })
  shown = { buf = buf, row = row, text = text, what = what }
  if what then
    timer:start(SHOWN_MS, 0, vim.schedule_wrap(clear))
  end
end

--- The hint for a buffer; nil where none is due.
---@param buf integer
---@return string|nil text
---@return string|nil what is told once
local function hint(buf)
  local client = client_of(buf)
  local reason = client and state.reason(client.id, buf)
  local inserting = vim.api.nvim_get_mode().mode:sub(1, 1) == 'i'
  if drawn or not inserting or not reason or not reason.lasts or switch.off(buf) then
    return nil
  elseif ENDS_BY_ITSELF[reason.kind] then
    return ('midfill %s: suggestions follow by themselves'):format(reason.text)
  elseif TOLD[reason.kind] then
    return ('midfill %s: :Midfill status says why'):format(reason.text), buf .. reason.kind
  end
end

local function follow()
  local buf = vim.api.nvim_get_current_buf()
  local text, what = hint(buf)
  local here = shown and shown.buf == buf and shown.row == vim.api.nvim_win_get_cursor(0)[1] - 1
  local goes_on = here and shown.what == what
  if goes_on and shown.text == text then
    return
  end
  clear()
  if text and (not what or goes_on or not told[what]) then
    if what then
      told[what] = true
    end
    show(buf, text, what)
  end
end

function M.setup()
  local group = vim.api.nvim_create_augroup('midfill.hints', {})
  local soon = vim.schedule_wrap(follow) -- the mode changes after InsertEnter
  local function on(events, callback, pattern)
    vim.api.nvim_create_autocmd(events, { group = group, callback = callback, pattern = pattern })
  end
  on({ 'InsertEnter', 'CursorMovedI', 'BufEnter' }, soon)
  on('ModeChanged', soon, 'i*:[^i]*') -- Ctrl-C does not trigger InsertLeave
  on('User', soon, 'MidfillStatus')
  on('BufWipeout', function(event)
    for kind in pairs(TOLD) do
      told[event.buf .. kind] = nil
    end
  end)
end

return M
