--- Runs the language server: configures it, handles its notifications, and restarts it when it dies.
local compat = require('midfill.compat')
local config = require('midfill.config')
local documents = require('midfill.documents')
local languages = require('midfill.languages')
local state = require('midfill.state')

local M = {}

M.NAME = 'midfill'

-- The plugin does not restart a server that dies this often within a minute.
local MOST_DEATHS = 3
local MINUTE_NS = 60 * 1e9

-- Shorter than the debounce of cursor moves (midfill.moves), so that changes reach the server before the move.
local CHANGES_MS = 30

-- What does not answer for so long is not waited for.
local HANG_MS = 3000

local deaths = {} ---@type integer[] when the server died, in ns
local gave_up = false -- whether it died so often that it was not restarted
local leaving = {} ---@type table<integer, boolean> clients that are stopping; true if a new one replaces them

local configured ---@type table|nil the options that the running servers were started with

--- The buffer of a document. Not vim.uri_to_bufnr(), which makes a buffer where it finds none, as for one without a name.
local function buffer_of(client_id, uri)
  local client = vim.lsp.get_client_by_id(client_id)
  local attached = client and client.attached_buffers or {}
  local function has(buf)
    return attached[buf] and vim.uri_from_bufnr(buf) == uri
  end
  local current = vim.api.nvim_get_current_buf() -- nearly always, and there may be hundreds
  return has(current) and current or vim.iter(vim.tbl_keys(attached)):find(has)
end

--- Send text that the server can read, with the places that it has in the buffer.
---@param client vim.lsp.Client
local function send_readable_text(client)
  local notify = client.rpc.notify
  client.rpc.notify = function(method, params)
    local carries = method == 'textDocument/didOpen' or method == 'textDocument/didChange'
    local buf = carries and buffer_of(client.id, params.textDocument.uri)
    if buf then
      params = vim.deepcopy(params) -- other clients may get the same
      for _, each in ipairs(params.contentChanges or { params.textDocument }) do
        each.text = compat.readable(each.text, vim.bo[buf].fileformat)
      end
    end
    return notify(method, params)
  end
end

local handlers = {}

handlers['midfill/status'] = function(_, status, context)
  state.set_status(context.client_id, status)
end

handlers['midfill/usage'] = function(_, usage, context)
  local buf = buffer_of(context.client_id, usage.textDocument.uri)
  if buf and not usage.isPrefetch then
    state.set_usage(buf, usage)
  end
end

handlers['midfill/resync'] = function(_, lost, context)
  local buf = buffer_of(context.client_id, lost.textDocument.uri)
  if not buf then
    return
  end
  vim.lsp.log.warn('midfill', 'opening again', lost.textDocument.uri, lost.reason)
  vim.lsp.buf_detach_client(buf, context.client_id)
  vim.lsp.buf_attach_client(buf, context.client_id)
end

handlers['midfill/reason'] = function(_, params, context)
  local buf = buffer_of(context.client_id, params.textDocument.uri)
  if not buf then
    return
  end
  state.set_reason(context.client_id, buf, params.reason)
  if type(params.reason) == 'table' and vim.list_contains({ 'off', 'snoozed', 'excluded' }, params.reason.kind) then
    M.hide(buf)
  end
end

handlers['midfill/refresh'] = function(_, params, context)
  local buf = buffer_of(context.client_id, params.textDocument.uri)
  if buf then
    M.refresh(buf, params.invoked)
  end
end

---@param client_id integer
---@param code integer
---@param signal integer
local function ended(client_id, code, signal)
  state.set_status(client_id, nil)
  local again = leaving[client_id]
  leaving[client_id] = nil
  local was_told_to = again == nil and code == 0 and signal == 0 -- by Neovim's own commands
  if again == false or was_told_to or vim.v.exiting ~= vim.NIL then
    return
  end
  if again == nil then
    local now = vim.uv.hrtime()
    deaths = vim.tbl_filter(function(at)
      return now - at < MINUTE_NS
    end, deaths)
    table.insert(deaths, now)
    if #deaths > MOST_DEATHS then
      gave_up = true
      state.announce()
      local how = signal ~= 0 and ('signal %d'):format(signal) or ('status %d'):format(code)
      vim.notify(
        ('midfill: the language server keeps exiting, last with %s. See :Midfill log, then :Midfill restart.'):format(how),
        vim.log.levels.ERROR
      )
      return
    end
  end
  M.start()
end

--- The settings for the server.
---@return table
local function settings()
  local given = config.options.settings
  return next(given) and languages.settings(given) or vim.empty_dict()
end

--- Send all settings: the server lays them over those that it was started with.
---@param client vim.lsp.Client
local function send_settings(client)
  compat.call(client, 'notify', 'workspace/didChangeConfiguration', { settings = { midfill = settings() } })
end

---@return table
local function configuration()
  local options = config.options
  local capabilities = vim.lsp.protocol.make_client_capabilities()
  capabilities.textDocument.inlineCompletion = { dynamicRegistration = false }
  capabilities.experimental = { midfill = true }
  return {
    name = M.NAME,
    cmd = options.cmd,
    filetypes = options.filetypes,
    before_init = function(params, started) -- a server for another root starts later, without start()
      started.init_options = settings()
      params.initializationOptions = started.init_options
    end,
    get_language_id = function(_, filetype)
      return languages.id(filetype)
    end,
    capabilities = capabilities,
    handlers = handlers,
    flags = { debounce_text_changes = CHANGES_MS },
    on_init = function(client)
      -- Where the user has switched vim.lsp.inline_completion on, it would show the same suggestions again.
      client.server_capabilities.inlineCompletionProvider = nil
      send_readable_text(client)
      if not vim.deep_equal(client.config.init_options, settings()) then -- configure() finds no server that is starting
        send_settings(client)
      end
    end,
    on_exit = function(code, signal, client_id)
      vim.schedule(function()
        ended(client_id, code, signal)
      end)
    end,
  }
end

--- Whether a running server can serve a file: Neovim 0.10 itself starts one for each file without a root.
---@param client vim.lsp.Client
---@param settings table
---@return boolean
local function same_root(client, settings)
  local same = client.name == settings.name and client.config.root_dir == settings.root_dir
  return same and not compat.call(client, 'is_stopped')
end

--- Start a server in a buffer with a file type, or have the one of its root take it.
---@param buf integer
local function start_in(buf)
  local filetypes, filetype = config.options.filetypes, vim.bo[buf].filetype
  local wanted = filetype ~= '' and vim.list_contains(filetypes or { filetype }, filetype)
  if wanted and vim.api.nvim_buf_is_loaded(buf) then
    documents.with_root(buf, function(root)
      local settings = vim.tbl_extend('force', vim.lsp.config and vim.lsp.config[M.NAME] or configuration(), {})
      settings.root_dir = root
      vim.lsp.start(settings, { bufnr = buf, reuse_client = same_root })
    end)
  end
end

--- Start servers from autocommands, as vim.lsp.enable() does from 0.11 on.
local function enable_by_filetype()
  vim.api.nvim_create_autocmd('FileType', {
    group = vim.api.nvim_create_augroup('midfill.start', {}),
    callback = function(event)
      start_in(event.buf)
    end,
  })
  vim.iter(vim.api.nvim_list_bufs()):each(start_in)
end

--- Whether the command of the language server is executable, and the reason if it is not.
---@return boolean
---@return string|nil
function M.executable()
  local command = config.options.cmd[1]
  if command and vim.fn.executable(command) == 1 then
    return true
  end
  return false,
    ('%q is not executable. Set the path of the midfill command: '):format(command or '')
      .. "require('midfill').setup({ cmd = { '/path/to/midfill/.venv/bin/midfill', 'lsp' } })"
end

--- Why no server is attached to a buffer: a few words for the status line, empty where none is expected, and an
--- explanation with what helps.
---@param buf integer
---@return string
---@return string
function M.absence(buf)
  local filetype = vim.bo[buf].filetype
  if not configured then
    return '', "require('midfill').setup() has not been called."
  elseif documents.is_no_file(buf) then
    local buftype = vim.bo[buf].buftype
    return '', ('it is no file (%s).'):format(buftype ~= '' and "'buftype' is " .. buftype or 'a folder')
  end
  local runs, reason = M.executable() -- searches the PATH, and so not at each redraw of windows without a file
  if not runs then
    return 'not found', reason --[[@as string]]
  elseif filetype == '' then
    local text = vim.api.nvim_buf_get_name(buf) ~= '' and 'needs a filetype' or ''
    return text, "it has no 'filetype', with which the server starts. For example :setfiletype text"
  elseif config.options.filetypes and not vim.list_contains(config.options.filetypes, filetype) then
    return '', ("the option filetypes of setup() does not have %s."):format(filetype)
  elseif documents.waits_for_name(buf) then
    return 'needs a name', 'another buffer without one has the server. :file NAME names this one.'
  elseif gave_up then
    return 'server exited', 'it keeps exiting. :Midfill log has its messages, and :Midfill restart starts it again.'
  end
  return '…', 'it is starting, or was stopped. :Midfill restart starts it again.'
end

--- The options that a running server has.
---@return table
local function running_options()
  local options = config.options
  return vim.deepcopy({ options.cmd, options.settings, options.root_markers or false, options.filetypes or false })
end

--- Close documents under their former names, and open them under the new ones, by which the server decides whether their
--- text may be used. Neovim itself does so where :saveas writes one, but not for :file, nor for the first name of a
--- buffer, which it tells as the end of one buffer, with its autocommands, and the beginning of another. Start a server
--- where a buffer had none for want of a name, also when it is the next of those.
local function follow_names()
  local left = {} ---@type table<integer, integer> the clients by their buffers
  local function attach(buf)
    local client_id = left[buf]
    left[buf] = nil
    if client_id and vim.api.nvim_buf_is_loaded(buf) then
      vim.lsp.buf_attach_client(buf, client_id)
    end
  end
  local group = vim.api.nvim_create_augroup('midfill.names', {})
  vim.api.nvim_create_autocmd({ 'BufFilePre', 'BufWipeout' }, {
    group = group,
    callback = function(event)
      local client = M.of(event.buf)
      if client then
        left[event.buf] = client.id
        vim.lsp.buf_detach_client(event.buf, client.id)
        vim.schedule(function() -- where another buffer has the name
          attach(event.buf)
        end)
      end
    end,
  })
  vim.api.nvim_create_autocmd({ 'BufFilePost', 'BufNew' }, {
    group = group,
    callback = function(event)
      if left[event.buf] then
        attach(event.buf)
      elseif #M.all() > 0 then
        start_in(event.buf)
      end
    end,
  })
  vim.api.nvim_create_autocmd({ 'BufUnload', 'BufFilePost', 'BufNew' }, {
    group = group,
    callback = vim.schedule_wrap(function() -- when the buffer has gone, or has its name
      if documents.nameless_has_left() and #M.all() > 0 then
        vim.iter(vim.api.nvim_list_bufs()):filter(documents.waits_for_name):each(start_in)
      end
    end),
  })
end

--- Configure the server and start it. A later call restarts the servers if their options differ.
function M.setup()
  local now = running_options()
  local changed = configured ~= nil and not vim.deep_equal(configured, now)
  configured = now
  follow_names()
  vim.api.nvim_create_autocmd('VimLeavePre', {
    group = vim.api.nvim_create_augroup('midfill.leave', {}),
    callback = function()
      for _, client in ipairs(M.all()) do
        leaving[client.id] = false
      end
    end,
  })
  if changed then
    vim.schedule(M.restart) -- finds also what vim.lsp.enable() has scheduled
  else
    M.start()
  end
end

--- Start servers for all buffers that need one and have none.
function M.start()
  local runs, reason = M.executable()
  if not runs then
    vim.notify('midfill: ' .. reason, vim.log.levels.ERROR)
    return
  end
  if vim.lsp.enable then
    local settings = vim.tbl_extend('error', configuration(), { root_dir = documents.with_root })
    local given = vim.lsp.config[M.NAME] or {}
    documents.keep_root(given.root_dir)
    -- Not vim.lsp.config(), which would keep settings of an earlier setup() that this one omits.
    local merged = vim.tbl_extend('force', given, settings)
    merged.filetypes = settings.filetypes
    vim.lsp.config[M.NAME] = merged
    vim.lsp.enable(M.NAME)
  else
    enable_by_filetype()
  end
end

--- Replace the core by a new process, then restart the servers; a core that does not answer is not waited for.
function M.restart_all()
  local attached, waiting = M.all()[1], true
  local function go_on()
    if waiting then
      waiting = false
      M.restart()
    end
  end
  if attached then
    M.execute(attached, 'midfill.restartCore', go_on)
    vim.defer_fn(go_on, HANG_MS)
  else
    go_on()
  end
end

--- Restart the servers with the current options.
function M.restart()
  deaths, gave_up = {}, false
  local clients = vim.lsp.get_clients({ name = M.NAME, _uninitialized = true }) -- one that is starting would be found again
  for _, client in ipairs(clients) do
    leaving[client.id] = true
    compat.call(client, 'stop')
    vim.defer_fn(function()
      if leaving[client.id] then
        compat.call(client, 'stop', true)
      end
    end, HANG_MS)
  end
  if #clients == 0 then
    M.start()
  end
end

--- Change settings of the running servers, and of those that replace them; the others keep their values.
---@param changed table
function M.configure(changed)
  config.options.settings = vim.tbl_extend('force', config.options.settings, changed)
  configured = configured and running_options()
  vim.iter(M.all()):each(send_settings)
end

--- Run a command of the server; `done` gets an error's message, or nil and the result.
---@param client vim.lsp.Client
---@param command string
---@param done fun(problem: string|nil, result: any)
---@param arguments any[]|nil
function M.execute(client, command, done, arguments)
  local offered = vim.tbl_get(client, 'server_capabilities', 'executeCommandProvider', 'commands') or {}
  if not vim.list_contains(offered, command) then
    done(('the language server has no command %s; it may be older than this plugin'):format(command))
    return
  end
  local params = { command = command, arguments = arguments }
  compat.call(client, 'request', 'workspace/executeCommand', params, function(err, result)
    done(err and err.message, result)
  end)
end

--- Request a suggestion again, and hide the one that is shown; setup() sets both to those of midfill.surface.
---@type fun(buf: integer, invoked: boolean)
function M.refresh() end

---@type fun(buf: integer)
function M.hide() end

---@param call fun(buf: integer)
function M.each_buffer(call)
  for _, client in ipairs(M.all()) do
    for buf in pairs(client.attached_buffers) do
      call(buf)
    end
  end
end

---@return vim.lsp.Client[]
function M.all()
  return vim.lsp.get_clients({ name = M.NAME })
end

---@param buf integer
---@return vim.lsp.Client|nil
function M.of(buf)
  return vim.lsp.get_clients({ name = M.NAME, bufnr = buf })[1]
end

return M
