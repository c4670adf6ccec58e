-- Declares the plugin of nvim/ for plugin managers, which put the root of the repository on the runtimepath.
local plugin = vim.fn.fnamemodify(debug.getinfo(1, 'S').source:sub(2), ':p:h:h') .. '/nvim'
vim.opt.runtimepath:prepend(plugin)
if vim.fn.filereadable(plugin .. '/doc/tags') == 0 then
  pcall(vim.cmd.helptags, plugin .. '/doc') -- managers make tags for the root alone; the folder may be read-only
end
vim.cmd.source(plugin .. '/plugin/midfill.lua')
