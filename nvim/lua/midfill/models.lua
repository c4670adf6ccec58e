--- Chooses the model, among those on this machine that the language server lists.
local client = require('midfill.client')
local config = require('midfill.config')

local M = {}

local LIST = 'midfill.listModels'

---@class midfill.Model
---@field name string the value for the setting `model`
---@field source string the program that has it
---@field family string
---@field sizeBytes integer
---@field quantization string
---@field problem string why midfill cannot run it; empty if it can

---@param model midfill.Model|false false stands for a name to be typed
---@return string
local function described(model)
  if not model then
    return 'Another: a path, or a name on the Hugging Face hub'
  end
  local size = model.sizeBytes > 0 and ('%.2f GB'):format(model.sizeBytes / 1e9) or ''
  local parts = vim.tbl_filter(function(part)
    return part ~= ''
  end, { model.source, model.family, size, model.quantization })
  local problem = model.problem ~= '' and ' -- cannot run: ' .. model.problem or ''
  return ('%s (%s)%s'):format(model.name, table.concat(parts, ', '), problem)
end

--- Use this model from now on, until Neovim ends.
---@param name string
local function use(name)
  config.options.settings.model = name
  client.configure(config.options.settings)
  local keep = ("require('midfill').setup({ settings = { model = %q } })"):format(name)
  vim.notify(('midfill: the model is now %s, until Neovim ends. To keep it: %s'):format(name, keep))
end

---@param model midfill.Model|false|nil
local function chosen(model)
  if model == nil then
    return
  elseif not model then
    vim.ui.input({ prompt = 'Model: ' }, function(name)
      if name and vim.trim(name) ~= '' then
        use(vim.trim(name))
      end
    end)
  elseif model.problem ~= '' then
    vim.notify(('midfill cannot run %s: %s'):format(model.name, model.problem), vim.log.levels.WARN)
  else
    use(model.name)
  end
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
    vim.ui.select(models, { prompt = 'Model', kind = 'midfill.model', format_item = described }, chosen)
  end)
end

return M
