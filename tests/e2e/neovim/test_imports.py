"""Missing imports of accepted text: one key adds them, by the code actions of the language's own server."""

from __future__ import annotations

import pytest

from tests.e2e.neovim.conftest import OpenScripted
from tests.e2e.neovim.driver import until
from tests.e2e.neovim.script import Script

# A language server within Neovim, which finds a fault in line 1 and offers these code actions for it.
LANGUAGE_SERVER = """
local titles = ...
local function edit(title)
  local top = { line = 0, character = 0 }
  local text = { range = { start = top, ['end'] = top }, newText = title .. '\\n' }
  return { changes = { [vim.uri_from_bufnr(0)] = { text } } }
end
asked = {}
vim.lsp.start({ name = 'language', cmd = function(dispatchers)
  local function request(method, params, callback)
    if method == 'initialize' then
      callback(nil, { capabilities = { codeActionProvider = true } })
    elseif method == 'textDocument/codeAction' then
      table.insert(asked, params)
      callback(nil, vim.tbl_map(function(title)
        return { title = title, kind = 'quickfix', edit = edit(title) }
      end, titles))
    else
      callback(nil, nil)
    end
    return true, 1
  end
  local function nothing() return false end
  return { request = request, notify = nothing, is_closing = nothing, terminate = nothing }
end })
local lsp = { message = 'os is not defined', range = { start = { line = 1, character = 0 } } }
vim.diagnostic.set(vim.api.nvim_create_namespace('language'), 0, {
  { lnum = 0, col = 0, message = 'elsewhere', user_data = { lsp = {} } },
  { lnum = 1, col = 4, message = lsp.message, user_data = { lsp = lsp } },
})
"""


@pytest.mark.parametrize(
    ("titles", "expected"),
    [
        (['Remove unused import "sys"', "Import `os`", "Ignore the rule"], "Import `os`\nx = 1\ny = os.getcwd()"),
        (["Organize", "Add all missing imports"], "x = 1\ny = os.getcwd()"),
    ],
)
def test_a_key_adds_what_the_accepted_text_lacks(
    open_scripted: OpenScripted, script: Script, titles: list[str], expected: str
) -> None:
    script.answer("os.getcwd()")
    neovim = open_scripted("x = 1\n\n")
    neovim.lua(LANGUAGE_SERVER, titles)
    neovim.keys("jiy = ")
    neovim.until_ghost()
    script.answer()
    neovim.keys("<M-l>")
    until(lambda: neovim.text().rstrip() == "x = 1\ny = os.getcwd()")
    neovim.keys("<M-i>")
    until(lambda: neovim.lua("return #asked == 1"))
    asked = neovim.lua("return asked[1]")
    assert [each["message"] for each in asked["context"]["diagnostics"]] == ["os is not defined"]
    assert asked["range"] == {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 15}}
    until(lambda: neovim.text().rstrip() == expected)


def test_without_an_acceptance_the_key_asks_nothing(open_scripted: OpenScripted, script: Script) -> None:
    script.answer()
    neovim = open_scripted("x = 1\n")
    neovim.lua(LANGUAGE_SERVER, ["Import `os`"])
    neovim.keys("<M-i>")
    neovim.keys("A")
    neovim.keys("<M-i>")
    neovim.keys("0")
    until(lambda: neovim.text().startswith("x = 10"))
    assert neovim.lua("return #asked") == 0
