#!/usr/bin/env bash
# Builds the pages and drives them in headless Chromium. Arguments are handed to node's test runner. PAGES_SCREENSHOTS
# names a folder for pictures, PAGES_TESTS one of the built files.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if ! command -v "${CHROMIUM:-/usr/bin/chromium}" > /dev/null; then
  as_root=$([ "$(id -u)" = 0 ] || echo sudo)
  $as_root apt-get update -qq
  $as_root apt-get install -y -qq --no-install-recommends chromium
fi

cd "$here/.."
if [ package-lock.json -nt node_modules/installed ]; then
  npm ci --no-audit --no-fund --ignore-scripts --loglevel error
  touch node_modules/installed
fi
npm run --silent check
npm run --silent build
node_modules/.bin/esbuild test/*.test.ts --bundle --packages=external --platform=node --format=esm --log-level=error \
  --out-extension:.js=.mjs --outdir=node_modules/tests
exec node --test --test-concurrency=1 "$@" "${PAGES_TESTS:-node_modules/tests/}"
