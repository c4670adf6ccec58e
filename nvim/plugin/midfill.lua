-- Declares the command, the <Plug> maps and the highlight groups; the plugin itself is loaded when one is used.

if vim.g.loaded_midfill then
  return
end
vim.g.loaded_midfill = true

if vim.fn.has('nvim-0.10') == 0 then
  vim.notify('midfill needs Neovim 0.10 or newer', vim.log.levels.ERROR)
  return
end

vim.api.nvim_create_user_command('Midfill', function(args)
  require('midfill.command').run(args.fargs)
end, {
  nargs = '*',
  complete = function(lead, line)
    return require('midfill.command').complete(lead, line)
  end,
  desc = 'Local code completion: status, switches, log',
})

for name, call in pairs({
  accept = 'accept()',
  ['accept-word'] = 'accept_word()',
  ['accept-line'] = 'accept_line()',
  next = 'next()',
  dismiss = 'dismiss()',
  imports = 'add_imports()',
}) do
  vim.keymap.set('i', ('<Plug>(midfill-%s)'):format(name), ("<Cmd>lua require('midfill').%s<CR>"):format(call))
end

vim.keymap.set('n', '<Plug>(midfill-imports)', "<Cmd>lua require('midfill').add_imports()<CR>")
vim.keymap.set('n', '<Plug>(midfill-edit)', "<Cmd>lua require('midfill.next_edit').go()<CR>")
vim.keymap.set('n', '<Plug>(midfill-refuse-edit)', "<Cmd>lua require('midfill.next_edit').refuse()<CR>")
vim.keymap.set('n', '<Plug>(midfill-ask-edit)', "<Cmd>lua require('midfill.next_edit').ask()<CR>")

local hint = vim.fn.hlexists('ComplHint') == 1 and 'ComplHint' or 'NonText'
vim.api.nvim_set_hl(0, 'MidfillGhost', { link = hint, default = true })
vim.api.nvim_set_hl(0, 'MidfillHint', { link = 'Comment', default = true })
vim.api.nvim_set_hl(0, 'MidfillEditOld', { link = 'DiffDelete', default = true })
vim.api.nvim_set_hl(0, 'MidfillEditStruck', { strikethrough = true, default = true })
vim.api.nvim_set_hl(0, 'MidfillEditNew', { link = 'DiffAdd', default = true })
