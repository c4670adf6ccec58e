--- Maps the keys of setup() in insert mode; if midfill has nothing to do, a key keeps its former meaning.
local M = {}

---@class midfill.Mapped
---@field buf integer|nil nil: in every buffer
---@field key string
---@field callback fun(): string
---@field former table|nil the mapping that midfill replaced, as |maparg()| returns it

local keys = {} ---@type table<string, string|false> by the name of the action
local can = {} ---@type table<string, fun(): boolean> by the name of the action
local mapped = {} ---@type midfill.Mapped[]

--- The buffer-local mapping of a key, or the global one if `buf` is nil.
---@param buf integer|nil
---@param key string
---@return table|nil
local function find(buf, key)
  for _, map in ipairs(buf and vim.api.nvim_buf_get_keymap(buf, 'i') or vim.api.nvim_get_keymap('i')) do
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

--- The keys that have the meaning of an unmapped key: Neovim reads a typed Alt chord as Escape and the plain key, but
--- not one that a mapping returns, which it would insert.
---@param key string
---@return string
local function unmapped(key)
  local plain = vim.fn.keytrans(vim.keycode(key)):match('^<M%-(.+)>$')
  if not plain or plain:match('^[CDST]%-.') then
    return key
  end
  return '<Esc>' .. (vim.fn.strchars(plain) == 1 and plain or '<' .. plain .. '>')
end

---@param buf integer|nil
---@param name string
---@param key string
local function map(buf, name, key)
  local former = find(buf, key)
  local action = ('<Plug>(midfill-%s)'):format((name:gsub('_', '-')))
  -- Neovim does not map a result again that begins with the key itself: the key gets Neovim's own meaning.
  local otherwise = former and keep(buf, former) or unmapped(key)
  local function callback()
    return can[name]() and action or otherwise
  end
  local desc = 'midfill: ' .. name:gsub('_', ' ')
  vim.keymap.set('i', key, callback, { buffer = buf, expr = true, remap = true, desc = desc })
  table.insert(mapped, { buf = buf, key = key, callback = callback, former = former })
end

--- Remove the mappings of setup(), except those that another plugin has replaced since.
local function restore()
  for _, each in ipairs(mapped) do
    local valid = not each.buf or vim.api.nvim_buf_is_valid(each.buf)
    local current = valid and find(each.buf, each.key)
    if current and current.callback == each.callback then
      vim.keymap.del('i', each.key, { buffer = each.buf })
      if each.former then
        inside(each.buf, function()
          vim.fn.mapset('i', false, each.former)
        end)
      end
    end
  end
  mapped = {}
end

--- Map the keys, replacing those of an earlier call.
---@param wanted table<string, string|false> by the name of the action
---@param usable table<string, fun(): boolean> by the name of the action: whether it has something to do now
function M.setup(wanted, usable)
  restore()
  keys, can = wanted, usable
  for name, key in pairs(keys) do
    if key then
      map(nil, name, key)
    end
  end
end

--- Map the keys that have a buffer-local mapping, which would hide midfill's global ones.
---@param buf integer
function M.attach(buf)
  for name, key in pairs(keys) do
    local done = vim.iter(mapped):any(function(each)
      return each.buf == buf and each.key == key
    end)
    if key and not done and find(buf, key) then
      map(buf, name, key)
    end
  end
end

return M
