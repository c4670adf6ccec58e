--- The command :Midfill and the output of its subcommands.
local client = require('midfill.client')
local state = require('midfill.state')
local stats = require('midfill.stats')
local switch = require('midfill.switch')

local M = {}

--- Show lines below each other, broken between words: Neovim breaks within them.
---@param lines string[]
local function say(lines)
  local shown = {}
  for _, line in ipairs(lines) do
    local row = line:match('^%s*')
    for word in line:gmatch('%S+') do
      if row:find('%S') and vim.fn.strdisplaywidth(row .. ' ' .. word) >= vim.o.columns then
        table.insert(shown, row)
        row = '  ' .. word
      else
        row = row:find('%S') and row .. ' ' .. word or row .. word
      end
    end
    table.insert(shown, row)
  end
  vim.api.nvim_echo({ { table.concat(shown, '\n') } }, true, {})
end

local commands = {}

function commands.status()
  local buf = vim.api.nvim_get_current_buf()
  local attached = client.of(buf)
  if not attached then
    local _, explanation = client.absence(buf)
    say({ 'midfill: no language server in this buffer: ' .. explanation })
    return
  end
  local status, reason = state.status(attached.id), state.reason(attached.id, buf)
  local lines = {}
  if reason then
    table.insert(lines, ('midfill: no suggestion (%s): %s'):format(reason.text, reason.explanation))
    for _, action in ipairs(reason.actions) do
      table.insert(lines, vim.trim((':Midfill act: %s. %s'):format(action.title, action.detail or '')))
    end
    local off = switch.off(buf)
    if off then
      table.insert(lines, (':Midfill enable%s: Switch them on.'):format(off == 'buffer' and ' buffer' or ''))
    end
  end
  if not reason then
    table.insert(lines, 'midfill: ' .. (status and status.state or 'the language server has sent no status yet'))
  elseif status and not vim.deep_equal(reason, status.reason) then
    table.insert(lines, 'core: ' .. (status.state == 'unloaded' and 'ready, model not loaded' or status.state))
  end
  if status and status.model ~= '' then
    table.insert(lines, 'model: ' .. status.model .. (status.device ~= '' and ' on ' .. status.device or ''))
  end
  if not reason and status and status.message ~= '' then
    table.insert(lines, status.message)
  end
  local usage = state.usage(buf)
  if usage then
    local tokens = usage.usage
    local computed = ('%d of %d tokens computed'):format(tokens.recomputed_tokens, tokens.prompt_tokens)
    table.insert(lines, ('last prompt: %.0f ms, %s'):format(usage.ms, computed))
  end
  say(lines)
end

function commands.restart()
  if client.executable() then
    say({ 'midfill: starting again' })
  end
  client.restart_all() -- tells what is not executable
end

--- What is off, and what switches it on; short enough for a line.
---@param where string
---@return string
local function off_words(where)
  return ('off in this %s (on: :Midfill enable%s)'):format(where, where == 'buffer' and ' buffer' or '')
end

function commands.enable(scope)
  require('midfill').enable(scope == 'buffer' and vim.api.nvim_get_current_buf() or nil)
  local off = switch.off(vim.api.nvim_get_current_buf())
  say({ 'midfill: ' .. (off and 'still ' .. off_words(off) or 'on') })
end

function commands.disable(scope)
  require('midfill').disable(scope == 'buffer' and vim.api.nvim_get_current_buf() or nil)
  say({ 'midfill: ' .. off_words(scope or 'editor') })
end

---@param cores table[]
---@return string[]
local function described(cores)
  local lines = #cores == 0 and { 'no core runs on this machine' } or {}
  for _, core in ipairs(cores) do
    local detail = core.detail ~= '' and (' (%s)'):format(core.detail) or ''
    local process = type(core.pid) == 'number' and (', process %d'):format(core.pid) or ''
    table.insert(lines, ('%s: %s%s%s'):format(core.model, core.state, detail, process))
    if core.summary ~= '' then
      table.insert(lines, '  ' .. core.summary)
    end
  end
  return lines
end

---@type table<string, {name: string, said: fun(result: any): string[]}> by name: the server's command
local core_commands = {
  list = { name = 'midfill.listCores', said = described },
  stop = {
    name = 'midfill.stopCore',
    said = function()
      return { 'midfill: stopped the core, for every editor. :Midfill suggest or :Midfill restart starts it' }
    end,
  },
  unload = {
    name = 'midfill.unloadModel',
    said = function()
      return { 'midfill: unloaded the model; the next suggestion loads it' }
    end,
  },
}

function commands.core(action)
  local attached = client.of(vim.api.nvim_get_current_buf()) or client.all()[1]
  if not attached then
    vim.notify('midfill: no language server is running, which controls the core', vim.log.levels.ERROR)
    return
  end
  local command = core_commands[action]
  client.execute(attached, command.name, function(problem, result)
    if problem then
      vim.notify('midfill: ' .. problem, vim.log.levels.ERROR)
    else
      say(command.said(result))
    end
  end)
end

---@param command string
---@param arguments any[]
---@param done fun()|nil
local function run_on_server(command, arguments, done)
  local buf = vim.api.nvim_get_current_buf()
  local attached = client.of(buf)
  if not attached then
    local _, explanation = client.absence(buf)
    say({ 'midfill: no language server in this buffer: ' .. explanation })
    return
  end
  client.execute(attached, command, function(problem)
    if problem then
      vim.notify('midfill: ' .. problem, vim.log.levels.ERROR)
    elseif done then
      done()
    end
  end, arguments)
end

--- Do what :Midfill status offers.
function commands.act()
  local buf = vim.api.nvim_get_current_buf()
  local attached = client.of(buf)
  local reason = attached and state.reason(attached.id, buf)
  local actions = reason and reason.actions or {}
  if #actions == 0 then
    say({ 'midfill: there is nothing to do about it here; see :Midfill status' })
  else
    run_on_server(actions[1].command, actions[1].arguments, function()
      say({ 'midfill: done: ' .. actions[1].title })
    end)
  end
end

function commands.snooze(minutes)
  run_on_server('midfill.snooze', { tonumber(minutes) or 0 }, function() -- 0: until the server restarts
    say({ 'midfill: suggestions are snoozed; :Midfill act resumes them' })
  end)
end

function commands.suggest()
  if not require('midfill').next() then
    commands.status()
  end
end

function commands.model()
  require('midfill.models').choose()
end

function commands.cancel()
  require('midfill.models').cancel()
end

function commands.stats()
  stats.show()
end

function commands.log()
  local file = vim.lsp.log.get_filename()
  if vim.fn.filereadable(file) == 0 then
    say({ 'midfill: no messages in ' .. file })
    return
  end
  vim.cmd.split({ vim.fn.fnameescape(file) })
  vim.cmd('normal! G')
end

---@class midfill.Argument
---@field choices string[]
---@field needed boolean
---@field minutes boolean|nil whether it can be any whole number of minutes

local scope = { choices = { 'buffer' }, needed = false }
local arguments_of = { ---@type table<string, midfill.Argument>
  enable = scope,
  disable = scope,
  core = { choices = vim.fn.sort(vim.tbl_keys(core_commands)), needed = true },
  snooze = { choices = { '5', '15', '60', 'until-restart' }, needed = true, minutes = true },
}

---@param takes midfill.Argument
---@return string
local function choices_of(takes)
  return table.concat(takes.choices, ', ') .. (takes.minutes and ', or another number of minutes' or '')
end

---@param given string[]
function M.run(given)
  local name, argument = given[1] or 'status', given[2]
  local takes = arguments_of[name]
  local known = argument == nil
    or takes and (vim.list_contains(takes.choices, argument) or takes.minutes and argument:find('^%d+$'))
  if not commands[name] or #given > 2 or not known then
    local choices = commands[name] and takes and choices_of(takes) or table.concat(vim.fn.sort(vim.tbl_keys(commands)), ', ')
    local problem = ('midfill: unknown command :Midfill %s; choose one of %s'):format(table.concat(given, ' '), choices)
    vim.notify(problem, vim.log.levels.ERROR)
  elseif takes and takes.needed and not argument then
    vim.notify(('midfill: :Midfill %s needs one of %s'):format(name, choices_of(takes)), vim.log.levels.ERROR)
  else
    commands[name](argument)
  end
end

---@param lead string
---@param line string
---@return string[]
function M.complete(lead, line)
  local words = vim.split(line, '%s+')
  local takes = arguments_of[words[#words - 1]]
  local candidates = #words > 2 and (takes and takes.choices or {}) or vim.fn.sort(vim.tbl_keys(commands))
  return vim.tbl_filter(function(name)
    return vim.startswith(name, lead)
  end, candidates)
end

return M
