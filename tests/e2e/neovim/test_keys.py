"""The keys of setup(): what they do where nothing is shown, and what setup() does when it is called again."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.neovim.conftest import OpenNeovim, OpenScripted, on_both
from tests.e2e.neovim.driver import Neovim, until
from tests.e2e.neovim.script import Script

# What a user may have mapped before setup(), by key. `zz` is mapped too, so that a recursive mapping can be told.
FORMER = """
vim.o.timeout = false
vim.cmd.source([[{script}]])
vim.cmd("inoremap zz (remapped)")
vim.cmd("imap <F5> zz")
vim.cmd("inoremap <F6> zz")
vim.keymap.set('i', '<F7>', function() vim.api.nvim_put({{ '(callback)' }}, 'c', false, true) end)
vim.cmd("inoremap <Plug>(jump) (jumped)")
vim.cmd("imap <silent><expr> <Tab> g:jump ? '<Plug>(jump)' : '<Tab>'")
vim.keymap.set('i', '<F8>', function()
  return vim.g.jump and '<Plug>(jump)' or '<F8>zz'
end, {{ expr = true, remap = true }})
vim.api.nvim_create_autocmd('FileType', {{ callback = function()
  vim.keymap.set('i', '<F9>', function() return '(local)' end, {{ buffer = true, expr = true }})
  vim.cmd("imap <buffer> <F11> <F9>zz")
end }})
"""
SCRIPT = """\
function! s:say() abort
  return '(script)'
endfunction
inoremap <expr> <F10> <SID>say()
imap <expr> <F12> <SID>say() .. 'zz'
"""
KEYS = "{ keys = { accept = '%s', accept_word = '%s', accept_line = '%s', dismiss = '%s', next = false } }"
ONE = KEYS % ("<F5>", "<F6>", "<F7>", "<Tab>")
OTHER = KEYS % ("<F8>", "<F9>", "<F10>", "<F12>")


def check_typed(neovim: Neovim, keys: str, expected: str) -> None:
    """The keys leave this in an empty line, without waiting for another key."""
    neovim.keys(f"<Esc>cc{keys}")
    until(lambda: neovim.text() == expected)


def check_former(neovim: Neovim) -> None:
    """Every key does what the user mapped it to."""
    neovim.lua("vim.g.jump = true")
    check_typed(neovim, "<F5>", "(remapped)")
    check_typed(neovim, "<F6>", "zz")
    check_typed(neovim, "<F7>", "(callback)")
    check_typed(neovim, "<Tab>", "(jumped)")
    check_typed(neovim, "<F8>", "(jumped)")
    check_typed(neovim, "<F9>", "(local)")
    check_typed(neovim, "<F10>", "(script)")
    check_typed(neovim, "<F11>", "(local)(remapped)")
    check_typed(neovim, "<F12>", "(script)(remapped)")
    neovim.lua("vim.g.jump = false")
    check_typed(neovim, "<Tab><Tab>|", "        |")
    check_typed(neovim, "<F8>", "<F8>(remapped)")


@on_both
def test_keys_do_what_they_did_before(open_scripted: OpenScripted, script: Script, tmp_path: Path) -> None:
    (tmp_path / "script.vim").write_text(SCRIPT, encoding="utf-8")
    before = FORMER.format(script=tmp_path / "script.vim") + "vim.o.expandtab = true vim.o.shiftwidth = 4"
    neovim = open_scripted("", before=before, options=ONE)
    for options in (ONE, OTHER, ONE, KEYS % ("<F11>", "<F10>", "<F12>", "<F13>")):
        neovim.lua(script.setup(options))
        check_former(neovim)
        script.answer("abc")
        neovim.keys("<Esc>cc")
        neovim.until_ghost()
        script.answer()
        neovim.keys(f"<{options.split('<')[1].split('>')[0]}>")
        until(lambda: neovim.text() == "abc")
    neovim.lua(script.setup())
    assert len(script.told("initialize")) == 1
    mappings = neovim.lua("return vim.tbl_map(function(map) return map.desc or '' end, vim.api.nvim_get_keymap('i'))")
    assert sorted(desc for desc in mappings if desc.startswith("midfill: ")) == [
        f"midfill: {name}" for name in ("accept", "accept", "accept line", "accept word", "dismiss", "imports", "next")
    ]
    check_former(neovim)


def test_a_default_key_with_nothing_to_do_does_nothing(open_scripted: OpenScripted) -> None:
    neovim = open_scripted("ab\nab\n")
    for key in ("<M-l>", "<C-l>", "<M-Right>", "<M-C-Right>", "<M-]>", "<C-]>"):
        neovim.keys(f"<Esc>ggcc{key}{key}dd")
        until(lambda: "dd" in neovim.text())
        assert (neovim.text(), neovim.mode()) == ("dd\nab", "i"), key
        neovim.keys("<Esc>u")
        until(lambda: neovim.text() == "ab\nab")


@on_both
def test_a_chord_of_the_user_with_nothing_to_do_does_nothing(open_scripted: OpenScripted) -> None:
    neovim = open_scripted("", options="{ keys = { accept = '<A-CR>', dismiss = { '<M-S-x>', '<M-e>' } } }")
    check_typed(neovim, "<M-CR>a<M-S-x>b<M-e>c", "abc")
    assert neovim.mode() == "i"


def test_control_l_goes_on_with_a_completion(open_scripted: OpenScripted) -> None:
    neovim = open_scripted("one two\none three\n\n")
    neovim.keys("Gione<C-x><C-l>")
    until(lambda: neovim.text().endswith("one three\none three"))
    neovim.keys("<C-l>|")
    until(lambda: neovim.text().endswith("one three\none two|"))


def test_an_unmapped_key_still_ends_abbreviations(open_scripted: OpenScripted) -> None:
    neovim = open_scripted("", options="{ keys = { accept = '/' } }", before="vim.cmd('iabbrev foo bar')")
    check_typed(neovim, "foo<C-]>!", "bar!")
    check_typed(neovim, "foo/", "bar/")


def test_a_mapping_made_after_setup_is_left_alone(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("", options="{ keys = { accept = '<F5>' } }")
    neovim.api.command("inoremap <F5> mine")
    neovim.lua(script.setup())
    check_typed(neovim, "<F5>", "mine")


@on_both
def test_other_keys_replace_those_of_normal_mode_and_leave_the_users(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("")
    neovim.api.command("nnoremap <F6> mine")
    neovim.lua(script.setup("{ keys = { edit = { '<F6>', '<F7>' }, imports = false } }"))
    normal = {key: neovim.api.funcs.maparg(key, "n") for key in ("<M-l>", "<M-i>", "<F6>", "<F7>")}
    assert normal.pop("<F7>")
    assert normal == {"<M-l>": "", "<M-i>": "", "<F6>": "mine"}


def test_other_server_options_start_the_server_again(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("", options="{ settings = { maxTokens = 7, exact = true } }")
    neovim.lua(script.setup("{ settings = { maxTokens = 8 } }"))
    until(lambda: len(script.told("textDocument/didOpen")) == 2)
    assert script.told("initialize")[-1]["initializationOptions"] == {"maxTokens": 8}
    assert neovim.lua("return #require('midfill.client').all()") == 1
    script.answer("abc")
    neovim.keys("i")
    assert neovim.until_ghost() == "abc"


def test_the_command_of_the_clone_is_found(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim("", options="{ cmd = { 'no-such-midfill' } }")
    command = neovim.lua("return require('midfill.config').defaults().cmd")
    assert command == [str(Path(__file__).parents[3] / ".venv/bin/midfill"), "lsp"]
