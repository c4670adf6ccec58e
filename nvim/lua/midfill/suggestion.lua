--- One suggestion: its place, the part of it that is not typed yet, and its insertion into the buffer.
local compat = require('midfill.compat')

local M = {}

---@class midfill.Suggestion
---@field item table the server's item, for reports of its acceptance
---@field client_id integer
---@field text string lines end in \n
---@field row integer from 0
---@field col integer in bytes, from 0
---@field before string the line up to there
---@field behind string the line from there on
---@field replaced integer bytes of `behind` that accepting the whole replaces
---@field line_count integer of the buffer

---@class midfill.Rest
---@field text string
---@field row integer
---@field col integer
---@field replaced integer

--- The cursor of the current window, from 0.
---@return integer row
---@return integer col
function M.cursor()
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  return row - 1, col
end

---@param buf integer
---@param row integer
---@return string
local function line_at(buf, row)
  return vim.api.nvim_buf_get_lines(buf, row, row + 1, false)[1] or ''
end

--- The suggestion of an answer to a request at the cursor; the buffer must not have changed since the request.
---@param client vim.lsp.Client
---@param buf integer
---@param item table
---@return midfill.Suggestion
function M.from_item(client, buf, item)
  local row, col = M.cursor()
  local line = line_at(buf, row)
  local last = item.range and compat.byte_column(line, item.range['end'].character, client.offset_encoding) or col
  return {
    item = item,
    client_id = client.id,
    text = (item.insertText:gsub('\r\n', '\n')),
    row = row,
    col = col,
    before = line:sub(1, col),
    behind = line:sub(col + 1),
    replaced = math.max(last - col, 0),
    line_count = vim.api.nvim_buf_line_count(buf),
  }
end

--- The part that is not typed yet; nil if the user typed something else, or nothing is left.
---@param suggestion midfill.Suggestion|nil
---@param buf integer
---@return midfill.Rest|nil
function M.rest(suggestion, buf)
  if not suggestion or vim.api.nvim_get_current_buf() ~= buf then
    return nil
  end
  local row, col = M.cursor()
  if row ~= suggestion.row or vim.api.nvim_buf_line_count(buf) ~= suggestion.line_count then
    return nil
  end
  local line = line_at(buf, row)
  local typed = line:sub(suggestion.col + 1, col)
  if
    col < suggestion.col
    or line ~= suggestion.before .. typed .. suggestion.behind
    or not vim.startswith(suggestion.text, typed)
    or #typed == #suggestion.text
  then
    return nil
  end
  return { text = suggestion.text:sub(#typed + 1), row = row, col = col, replaced = suggestion.replaced }
end

--- The first word, with the white space before it; adjacent punctuation marks are one word.
---@param text string
---@return string
function M.first_word(text)
  return text:match('^%s*[%w_\128-\255]+') or text:match('^%s*[^%w%s_\128-\255]+') or text
end

--- The first line without its end; if the text begins with a line end, that and the next line.
---@param text string
---@return string
function M.first_line(text)
  return text:match('^\n*[^\n]*')
end

--- What the keys that a macro records begin with, where a piece was accepted.
M.RECORDED = vim.keycode('<Cmd>') .. "lua require('midfill.suggestion').put("

local accepted ---@type fun()|nil what follows the insertion that is under way

--- While inserting: what is typed next can be undone alone.
function M.end_undo_step()
  vim.api.nvim_feedkeys(vim.keycode('<C-g>u'), 'ni', false)
end

--- Insert text at the cursor, in place of so many characters behind it, as if it were typed: `.` repeats it. No mapping,
--- abbreviation or indentation changes it.
---@param text string
---@param replaced integer keys delete these, since `.` repeats nothing else; the insertion then follows the return
function M.put(text, replaced)
  if replaced > 0 then
    vim.api.nvim_feedkeys(vim.keycode(('<Del>'):rep(replaced)) .. M.recorded(text, 0), 'ni', false)
    return
  end
  local paste, done = vim.paste, accepted
  accepted = nil
  vim.paste = function(lines) -- nvim_paste() alone lets `.` repeat text; the user may have changed what it calls
    vim.api.nvim_put(lines, 'c', false, true)
    return true
  end
  local inserted, problem = pcall(vim.api.nvim_paste, text, false, -1)
  vim.paste = paste
  if not inserted then
    error(problem, 0)
  elseif done then
    M.end_undo_step()
    done()
  end
end

--- The keys that call put().
---@param text string
---@param replaced integer
---@return string
function M.recorded(text, replaced)
  local literal = ('%q'):format(text):gsub('\\\n', '\\n'):gsub('[%c\128-\255]', function(byte) -- keys would not keep these
    return ('\\%03d'):format(byte:byte())
  end)
  return M.RECORDED .. ('%s, %d)'):format(literal, replaced) .. '\r'
end

--- Insert a piece of the rest at the cursor with put(), as an undo step of its own. The whole rest also replaces
--- `replaced` bytes. A macro that is being recorded gets the text, since a key that accepts would find nothing to
--- accept when it is replayed.
---@param buf integer
---@param rest midfill.Rest
---@param piece string
---@param done fun() called with the cursor behind the inserted text
function M.insert(buf, rest, piece, done)
  vim.bo[buf].undolevels = vim.bo[buf].undolevels
  local replaced = piece == rest.text and line_at(buf, rest.row):sub(rest.col + 1, rest.col + rest.replaced) or ''
  local characters = vim.fn.strchars(replaced, true)
  accepted = done
  if vim.fn.reg_recording() ~= '' then
    vim.api.nvim_feedkeys(M.recorded(piece, characters), 'nit', false)
  else
    M.put(piece, characters)
  end
end

--- Call `done` when insert mode ends in this buffer: unlike InsertLeave also at Ctrl-C and the change to Replace mode.
---@param group integer of autocommands
---@param buf integer
---@param done fun(buf: integer)
function M.when_insertion_ends(group, buf, done)
  vim.api.nvim_create_autocmd('ModeChanged', {
    group = group,
    pattern = 'i*:[^i]*',
    callback = function()
      if vim.api.nvim_get_current_buf() == buf then
        done(buf)
      end
    end,
  })
end

--- Have the user insert again where they inserted last; false outside of normal mode, where nothing happens.
---@return boolean
function M.insert_again()
  local normal = vim.api.nvim_get_mode().mode == 'n'
  if normal then
    vim.api.nvim_feedkeys('gi', 'n', false)
  end
  return normal
end

--- The suggestion that remains behind an accepted piece, at the cursor.
---@param suggestion midfill.Suggestion
---@param buf integer
---@param rest midfill.Rest
---@param piece string
---@return midfill.Suggestion
function M.behind(suggestion, buf, rest, piece)
  local row, col = M.cursor()
  local line = line_at(buf, row)
  return vim.tbl_extend('force', suggestion, {
    text = rest.text:sub(#piece + 1),
    row = row,
    col = col,
    before = line:sub(1, col),
    behind = line:sub(col + 1),
    line_count = vim.api.nvim_buf_line_count(buf),
  })
end

return M
