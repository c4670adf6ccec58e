" Aligns lines (it's simple).
function! s:Align(first, last) abort
  let lines = getline(a:first, a:last)
  for line in lines
    if line =~# '^\s*$'
      continue
    endif
    call add(g:aligned, substitute(line, '\s\+', ' ', 'g'))
  endfor
  return len(lines)
endfunction

let g:aligned = []
command! -range Align call s:Align(<line1>, <line2>)
nnoremap <silent> ga :Align<CR>
