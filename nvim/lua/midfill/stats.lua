--- Shows the statistics that the language servers count on this machine, as `midfill stats` prints them.
local config = require('midfill.config')

local M = {}

local NAME = 'midfill://stats'

--- Run `midfill stats`.
---@param done fun(output: string)
local function run(done)
  local options = { text = true, env = { NO_COLOR = '1', COLUMNS = tostring(vim.o.columns) } }
  local started, problem = pcall(vim.system, config.another('stats'), options, function(ended)
    vim.schedule(function()
      if ended.code == 0 then
        done(ended.stdout)
      else
        vim.notify('midfill: ' .. vim.trim(ended.stderr), vim.log.levels.ERROR)
      end
    end)
  end)
  if not started then
    vim.notify('midfill: ' .. problem, vim.log.levels.ERROR)
  end
end

--- Show the table in a window of its own.
function M.show()
  run(function(output)
    local lines = vim.split(vim.trim(output), '\n')
    local sentence = #lines == 1 -- no table
    local rows = sentence and math.ceil(vim.fn.strdisplaywidth(lines[1]) / vim.o.columns) or #lines
    local former = vim.fn.bufnr('^' .. NAME .. '$')
    if former ~= -1 then
      vim.api.nvim_buf_delete(former, { force = true })
    end
    vim.cmd(('botright %dnew'):format(math.min(rows, math.floor(vim.o.lines / 2))))
    local buf = vim.api.nvim_get_current_buf()
    vim.api.nvim_buf_set_name(buf, NAME)
    vim.bo[buf].buftype, vim.bo[buf].bufhidden, vim.bo[buf].swapfile = 'nofile', 'wipe', false
    vim.api.nvim_buf_set_lines(buf, 0, -1, false, lines)
    vim.bo[buf].modifiable = false
    vim.wo.wrap, vim.wo.linebreak = sentence, true
  end)
end

return M
