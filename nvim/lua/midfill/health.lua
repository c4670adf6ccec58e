--- :checkhealth midfill
local client = require('midfill.client')
local config = require('midfill.config')
local state = require('midfill.state')

local health = vim.health

local M = {}

local function check_neovim()
  if vim.fn.has('nvim-0.10') == 0 then
    health.error('midfill needs Neovim 0.10 or newer')
  else
    health.ok('Neovim is new enough')
  end
end

---@return boolean
local function check_command()
  local runs, reason = client.executable()
  if not runs then
    health.error(reason)
    return false
  end
  local command, asked = config.options.cmd, config.another('--help')
  local done = vim.system(asked, { text = true }):wait(20000)
  if done.code ~= 0 then
    local said = vim.trim(done.stderr or '')
    health.error(('`%s` exited with status %d: %s'):format(table.concat(asked, ' '), done.code, said))
    return false
  end
  health.ok(('the language server is `%s` (%s)'):format(table.concat(command, ' '), vim.fn.exepath(command[1])))
  return true
end

local function check_servers()
  local clients = client.all()
  if #clients == 0 then
    health.info('no language server is running: it starts with the first file that has a file type')
  end
  for _, each in ipairs(clients) do
    local status = state.status(each.id)
    local buffers = vim.tbl_count(each.attached_buffers)
    local text = ('language server %d, in %d buffers: %s'):format(each.id, buffers, status and status.state or 'starting')
    if not status then
      health.info(text)
    elseif status.state == 'failed' or (type(status.reason) == 'table' and status.reason.kind == 'failed') then
      local reason = type(status.reason) == 'table' and status.reason.explanation or status.message
      health.error(text .. ': ' .. reason)
    else
      health.ok(('%s %s %s'):format(text, status.model, status.device))
    end
  end
end

function M.check()
  health.start('midfill')
  check_neovim()
  if check_command() then
    check_servers()
  end
end

return M
