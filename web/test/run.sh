#!/usr/bin/env bash
# Drives the pages that `make pages` has built in headless Chromium; needs no network once there is one. Arguments are handed to
# node's test runner, and name built files if not all are wanted. PAGES_SCREENSHOTS names a folder for pictures.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

"$here/../../tests/e2e/install_chromium.sh"
cd "$here/.."
node_modules/.bin/esbuild test/*.test.ts --bundle --packages=external --platform=node --format=esm --log-level=error \
  --out-extension:.js=.mjs --outdir=node_modules/tests
exec node --test --test-concurrency=1 "${@:-node_modules/tests/}"
