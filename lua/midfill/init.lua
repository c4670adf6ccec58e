-- Loads the plugin of nvim/ where setup() is called before plugin/midfill.lua has been sourced, as after vim.pack.add().
local plugin = vim.fn.fnamemodify(debug.getinfo(1, 'S').source:sub(2), ':p:h:h:h') .. '/nvim'
vim.opt.runtimepath:prepend(plugin)
return dofile(plugin .. '/lua/midfill/init.lua')
