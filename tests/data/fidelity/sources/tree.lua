local M = {}

-- Walks the tree; `visit(node)` may return false (then it stops).
function M.walk(node, visit)
  if visit(node) == false then
    return false
  end
  for _, child in ipairs(node.children or {}) do
    if M.walk(child, visit) == false then
      return false
    end
  end
  return true
end

function M.find(text)
  local first, last = text:find(')', 1, true)
  return first and { first = first, last = last } or nil
end

return M
