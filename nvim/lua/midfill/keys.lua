--- Maps the keys of setup(): in insert mode, where a key keeps its former mapping if midfill has nothing to do, and in
--- normal mode, where a key that is mapped is left alone.
local suggestions = require('midfill.suggestion')

local M = {}

local NORMAL = { edit = true, imports = true } -- of these, only `imports` is an action of insert mode, too

---@class midfill.Mapped
---@field mode 'i'|'n'
---@field buf integer|nil nil: in every buffer
---@field key string
---@field callback fun(): string
---@field former table|nil the mapping that midfill replaced, as |maparg()| returns it

local keys = {} ---@type {name: string, key: string}[] the name is that of the action
local can = {} ---@type table<string, fun(): boolean> by the name of the action
local mapped = {} ---@type midfill.Mapped[]

--- The buffer-local mapping of a key, or the global one if `buf` is nil.
---@param mode 'i'|'n'
---@param buf integer|nil
---@param key string
---@return table|nil
local function find(mode, buf, key)
  for _, map in ipairs(buf and vim.api.nvim_buf_get_keymap(buf, mode) or vim.api.nvim_get_keymap(mode)) do
    if vim.keycode(map.lhs) == vim.keycode(key) then
      return map
    end
  end
end

--- The keys that a recursive mapping currently expands to.
---@param map table
---@return string
local function keys_of(map)
  if map.callback then
    local result = map.callback() or ''
    return map.replace_keycodes == 1 and vim.keycode(result) or result
  end
  local rhs = vim.keycode((map.rhs:gsub('<[Ss][Ii][Dd]>', ('<SNR>%d_'):format(map.sid))))
  return map.expr == 1 and tostring(vim.api.nvim_eval(rhs)) or rhs
end

--- Run in the buffer of a mapping; mapset() takes no buffer.
---@param buf integer|nil
---@param call fun()
local function inside(buf, call)
  if buf then
    vim.api.nvim_buf_call(buf, call)
  else
    call()
  end
end

--- Map new <Plug> keys to a former mapping.
---
--- A recursive mapping may return its own key (LuaSnip's documented <Tab> does), which Neovim then does not map
--- again. On the <Plug> key Neovim would map it again, to midfill's mapping, so it returns the unmapped key instead.
---@param buf integer|nil
---@param former table
---@return string
local function keep(buf, former)
  -- Other mappings may still use the keys of an earlier setup(), so each call creates new ones.
  local lhs = ('<Plug>(midfill-former-%d)'):format(vim.uv.hrtime())
  if former.noremap == 1 or (former.callback and former.expr == 0) then
    local copy = vim.tbl_extend('force', former, { lhs = lhs, lhsraw = vim.keycode(lhs) })
    copy.lhsrawalt = nil
    inside(buf, function()
      vim.fn.mapset('i', false, copy)
    end)
    return lhs
  end
  local key, plain = vim.keycode(former.lhs), (lhs:gsub('former', 'plain'))
  vim.keymap.set('i', plain, former.lhs, { buffer = buf })
  vim.keymap.set('i', lhs, function()
    local result = keys_of(former)
    return vim.startswith(result, key) and vim.keycode(plain) .. result:sub(#key + 1) or result
  end, { buffer = buf, expr = true, remap = true, replace_keycodes = false, silent = former.silent == 1 })
  return lhs
end

--- What a key without a former mapping does where midfill has nothing to do: what it does in Neovim, unless that is
--- nothing a user wants. Neovim reads an Alt chord as Escape and a command, and outside of completion writes Ctrl-L as
--- a character.
---@param key string
---@return string
local function unmapped(key)
  local name = vim.fn.keytrans(vim.keycode(key))
  local idle = name:match('^<M%-') or name == '<C-L>' and vim.fn.complete_info({ 'mode' }).mode == ''
  return idle and '' or key
end

---@param mode 'i'|'n'
---@param buf integer|nil
---@param name string
---@param key string
local function map(mode, buf, name, key)
  local former = find(mode, buf, key)
  if former and mode == 'n' then
    return
  end
  local action = ('<Plug>(midfill-%s)'):format((name:gsub('_', '-')))
  local kept = former and keep(buf, former)
  local function callback()
    -- Neovim does not map a result again that begins with the key itself: the key gets Neovim's own meaning.
    return can[name]() and action or kept or unmapped(key)
  end
  local desc = 'midfill: ' .. name:gsub('_', ' ')
  vim.keymap.set(mode, key, callback, { buffer = buf, expr = true, remap = true, desc = desc })
  table.insert(mapped, { mode = mode, buf = buf, key = key, callback = callback, former = former })
end

--- Remove the mappings of setup(), except those that another plugin has replaced since.
local function restore()
  for _, each in ipairs(mapped) do
    local valid = not each.buf or vim.api.nvim_buf_is_valid(each.buf)
    local current = valid and find(each.mode, each.buf, each.key)
    if current and current.callback == each.callback then
      vim.keymap.del(each.mode, each.key, { buffer = each.buf })
      if each.former then
        inside(each.buf, function()
          vim.fn.mapset('i', false, each.former)
        end)
      end
    end
  end
  mapped = {}
end

--- Take the keys out of a recorded register that stand before what they accepted, which is recorded, too: where
--- nothing is shown, they may have another meaning.
---@param register string
local function clean(register)
  register = register:lower() -- an upper one appends
  local text = vim.fn.getreg(register)
  for _, each in ipairs(keys) do
    text = text:gsub(vim.pesc(vim.keycode(each.key) .. suggestions.RECORDED), function()
      return suggestions.RECORDED
    end)
  end
  if text ~= vim.fn.getreg(register) then
    vim.fn.setreg(register, text, 'c')
  end
end

--- Map the keys, replacing those of an earlier call.
---@param wanted table<string, string|string[]|false> by the name of the action
---@param usable table<string, fun(): boolean> by the name of the action: whether it has something to do now
function M.setup(wanted, usable)
  restore()
  keys, can = {}, usable
  for name, given in pairs(wanted) do
    for _, key in ipairs(type(given) == 'table' and given or { given or nil }) do
      if name ~= 'edit' then
        table.insert(keys, { name = name, key = key })
        map('i', nil, name, key)
      end
      if NORMAL[name] then
        map('n', nil, name, key)
      end
    end
  end
  vim.api.nvim_create_autocmd('RecordingLeave', {
    group = vim.api.nvim_create_augroup('midfill.keys', {}),
    callback = function()
      vim.schedule_wrap(clean)(vim.v.event.regname) -- the register is set after this event
    end,
  })
end

--- Map the keys that have a buffer-local mapping, which would hide midfill's global ones.
---@param buf integer
function M.attach(buf)
  for _, wanted in ipairs(keys) do
    local done = vim.iter(mapped):any(function(each)
      return each.buf == buf and each.key == wanted.key
    end)
    if not done and find('i', buf, wanted.key) then
      map('i', buf, wanted.name, wanted.key)
    end
  end
end

return M
