--- Chooses the model, among those that the language server lists: on this machine, or to download.
local client = require('midfill.client')
local compat = require('midfill.compat')
local state = require('midfill.state')

local M = {}

local LIST = 'midfill.listModels'
local DOWNLOAD = 'midfill.downloadModel'

local downloads = {} ---@type table<integer, table<string|integer, string>> by client: the titles by their tokens

---@class midfill.Model
---@field name string the value for the setting `model`
---@field source string the program that has it
---@field family string
---@field sizeBytes integer
---@field quantization string
---@field problem string why midfill cannot run it; empty if it can
---@field runsWith string|nil the engine that runs it in place of midfill's own
---@field here boolean|nil false for one to download
---@field licence string|nil of one to download

---@param model midfill.Model|false false stands for a name to be typed
---@return string
local function described(model)
  if not model then
    return 'Another: a path, or a name on the Hugging Face hub (OWNER/NAME[:Q4_K_M])'
  end
  local size = model.sizeBytes > 0 and ('%.2f GB'):format(model.sizeBytes / 1e9) or ''
  local parts = vim.tbl_filter(function(part)
    return part ~= ''
  end, {
    model.here == false and 'to download' or model.source,
    model.family,
    size,
    model.quantization,
    model.licence or '',
    (model.runsWith or '') ~= '' and 'runs with ' .. model.runsWith or '',
  })
  local problem = model.problem ~= '' and ' -- cannot run: ' .. model.problem or ''
  return ('%s (%s)%s'):format(model.name, table.concat(parts, ', '), problem)
end

---@param choice {name: string, sizeBytes: integer}
---@return string
local function quantization(choice)
  return ('%s (%.2f GB)'):format(choice.name, choice.sizeBytes / 1e9)
end

--- Use this model from now on, until Neovim ends.
---@param name string
local function use(name)
  client.configure({ model = name })
  local keep = ("require('midfill').setup({ settings = { model = %q } })"):format(name)
  vim.notify(('midfill: the model is now %s, until Neovim ends. To keep it: %s'):format(name, keep))
end

--- Download a model of the hub, then use it.
---@param name string
function M.download(name)
  local attached = client.of(vim.api.nvim_get_current_buf()) or client.all()[1]
  if not attached then
    vim.notify('midfill: no language server runs; it downloads models', vim.log.levels.ERROR)
    return
  end
  vim.notify(('midfill: downloading %s; :Midfill cancel stops it'):format(name))
  client.execute(attached, DOWNLOAD, function(problem, result)
    if problem then
      vim.notify('midfill: ' .. problem, vim.log.levels.ERROR)
    elseif result.cancelled then
      vim.notify(('midfill: stopped; the next download of %s goes on from there'):format(name))
    elseif result.choices then
      local options = { prompt = 'Quantization', kind = 'midfill.model', format_item = quantization }
      vim.ui.select(result.choices, options, function(choice)
        if choice then
          M.download(choice.name)
        end
      end)
    else
      use(name)
    end
  end, { name })
end

---@param model midfill.Model|false|nil
local function chosen(model)
  if model == nil then
    return
  elseif not model then
    vim.ui.input({ prompt = 'Model: ' }, function(name)
      name = vim.trim(name or '')
      if name:match('^[%w][%w._-]*/[%w][%w._-]*:?[%w._-]*$') and not vim.uv.fs_stat(name) then
        M.download(name)
      elseif name ~= '' then
        use(name)
      end
    end)
  elseif model.problem ~= '' then
    vim.notify(('midfill cannot run %s: %s'):format(model.name, model.problem), vim.log.levels.WARN)
  elseif model.here == false then
    M.download(model.name)
  else
    use(model.name)
  end
end

--- Cancel the downloads that are under way.
function M.cancel()
  local found = false
  for _, attached in ipairs(client.all()) do
    for token in pairs(downloads[attached.id] or {}) do
      compat.call(attached, 'notify', 'window/workDoneProgress/cancel', { token = token })
      found = true
    end
  end
  if not found then
    vim.notify('midfill: nothing is being downloaded')
  end
end

--- Show how far downloads are, and remember them for M.cancel().
function M.setup()
  vim.api.nvim_create_autocmd('LspProgress', {
    group = vim.api.nvim_create_augroup('midfill.progress', {}),
    callback = function(event)
      local attached = vim.lsp.get_client_by_id(event.data.client_id)
      local params = event.data.params or event.data.result
      local value = params and params.value
      if not attached or attached.name ~= client.NAME or type(value) ~= 'table' then
        return
      end
      local known = downloads[attached.id] or {}
      downloads[attached.id] = known
      if value.kind == 'begin' and value.cancellable then
        known[params.token] = value.title
      elseif value.kind == 'report' and known[params.token] then
        local told = ('%s: %s'):format(known[params.token], value.message)
        vim.api.nvim_echo({ { told } }, false, {})
      elseif value.kind == 'end' then
        known[params.token] = nil
      end
    end,
  })
end

--- Ask the user for a model, with vim.ui.select().
function M.choose()
  local attached = client.of(vim.api.nvim_get_current_buf()) or client.all()[1]
  if not attached then
    vim.notify('midfill: no language server runs; it lists the models', vim.log.levels.ERROR)
    return
  end
  client.execute(attached, LIST, function(problem, models)
    if problem then
      vim.notify('midfill: ' .. problem, vim.log.levels.ERROR)
      return
    end
    table.insert(models, false)
    local status = state.status(attached.id)
    local prompt = status and status.model ~= '' and ('Model (now %s)'):format(status.model) or 'Model'
    vim.ui.select(models, { prompt = prompt, kind = 'midfill.model', format_item = described }, chosen)
  end)
end

return M
