--- The command :Midfill and what its subcommands say.
local client = require('midfill.client')
local state = require('midfill.state')
local stats = require('midfill.stats')
local switch = require('midfill.switch')

local M = {}

---@param lines string[]
local function say(lines)
  vim.api.nvim_echo({ { table.concat(lines, '\n') } }, true, {})
end

local commands = {}

function commands.status()
  local buf = vim.api.nvim_get_current_buf()
  local attached = client.of(buf)
  if not attached then
    local runs, reason = client.executable()
    say({ 'midfill: no language server in this buffer' .. (runs and '' or ': ' .. reason) })
    return
  end
  local status = state.status(attached.id)
  local lines = { 'midfill: ' .. (status and status.state or 'no word from the language server yet') }
  if status and status.model ~= '' then
    table.insert(lines, ('model: %s on %s'):format(status.model, status.device))
  end
  if status and status.message ~= '' then
    table.insert(lines, status.message)
  end
  local usage = state.usage(buf)
  if usage then
    local computed = usage.usage.recomputed_tokens
    local took = ('last prompt: %.0f ms, %s, %d tokens computed'):format(usage.ms, usage.heat, computed)
    table.insert(lines, took)
  end
  if not switch.on(buf) then
    table.insert(lines, 'switched off here; :Midfill enable')
  end
  say(lines)
end

function commands.restart()
  client.restart()
end

function commands.enable(scope)
  require('midfill').enable(scope == 'buffer' and vim.api.nvim_get_current_buf() or nil)
end

function commands.disable(scope)
  require('midfill').disable(scope == 'buffer' and vim.api.nvim_get_current_buf() or nil)
end

function commands.stats()
  say(stats.lines())
end

function commands.log()
  local file = vim.lsp.log.get_filename()
  if vim.fn.filereadable(file) == 0 then
    say({ 'midfill: nothing has been logged in ' .. file })
    return
  end
  vim.cmd.split({ vim.fn.fnameescape(file) })
  vim.cmd('normal! G')
end

local scopes = { enable = { 'buffer' }, disable = { 'buffer' } }

---@param arguments string[]
function M.run(arguments)
  local name, scope = arguments[1], arguments[2]
  local allowed = scopes[name] or {}
  if not commands[name] or #arguments > 2 or (scope and not vim.list_contains(allowed, scope)) then
    vim.notify('midfill: no such command: :Midfill ' .. table.concat(arguments, ' '), vim.log.levels.ERROR)
    return
  end
  commands[name](scope)
end

---@param lead string
---@param line string
---@return string[]
function M.complete(lead, line)
  local words = vim.split(line, '%s+')
  local candidates = #words > 2 and (scopes[words[#words - 1]] or {}) or vim.fn.sort(vim.tbl_keys(commands))
  return vim.tbl_filter(function(name)
    return vim.startswith(name, lead)
  end, candidates)
end

return M
