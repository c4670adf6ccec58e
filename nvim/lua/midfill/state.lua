--- The last messages of the language servers: the state of their cores, and the cost of each buffer's last prompt.
local M = {}

---@class midfill.Status
---@field state 'starting'|'unloaded'|'loading'|'ready'|'failed'|'stopped'
---@field message string
---@field model string
---@field device string
---@field progress number|nil

---@type table<integer, midfill.Status> by client
local statuses = {}
---@type table<integer, table> by buffer: the parameters of midfill/usage
local usages = {}
---@type table<integer, table<integer, midfill.Reason>> by client and buffer
local reasons = {}

---@class midfill.Reason why nothing is suggested, in the server's words
---@field kind string
---@field text string a few words, for the status line
---@field explanation string
---@field actions {title: string, command: string, arguments: any[]}[] commands of the server
---@field lasts boolean whether further requests meet it too

--- Redraw the status lines; call it only if their text has changed.
function M.announce()
  vim.cmd.redrawstatus({ bang = true })
  vim.api.nvim_exec_autocmds('User', { pattern = 'MidfillStatus', modeline = false })
end

---@param client_id integer
---@param status midfill.Status|nil nil when the client is gone
function M.set_status(client_id, status)
  local before = statuses[client_id]
  statuses[client_id] = status
  if not status then
    reasons[client_id] = nil
  end
  if not vim.deep_equal(before, status) then
    M.announce()
  end
end

---@param buf integer
---@param usage table|nil
function M.set_usage(buf, usage)
  usages[buf] = usage
end

--- Store why the server suggests nothing in the buffer.
---@param client_id integer
---@param buf integer
---@param reason any the reason; no table if the server does suggest
function M.set_reason(client_id, buf, reason)
  local known = reasons[client_id] or {}
  local before = known[buf]
  known[buf] = type(reason) == 'table' and reason or nil
  reasons[client_id] = known
  if not vim.deep_equal(known[buf], before) then
    M.announce()
  end
end

--- Why the server suggests nothing in this buffer, or anywhere; nil if it does suggest.
---@param client_id integer
---@param buf integer
---@return midfill.Reason|nil
function M.reason(client_id, buf)
  local status = statuses[client_id]
  local of_core = status and type(status.reason) == 'table' and status.reason or nil
  return (reasons[client_id] or {})[buf] or of_core
end

---@param client_id integer|nil
---@return midfill.Status|nil
function M.status(client_id)
  return client_id and statuses[client_id]
end

---@param buf integer
---@return table|nil
function M.usage(buf)
  return usages[buf]
end

return M
