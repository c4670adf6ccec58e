#!/usr/bin/env bash
# Installs Debian's Chromium, which the tests of the extension and of the pages drive, where there is none; CHROMIUM names another.
set -euo pipefail
if ! command -v "${CHROMIUM:-/usr/bin/chromium}" > /dev/null; then
  as_root=$([ "$(id -u)" = 0 ] || echo sudo)
  echo 'Installing Chromium ...'
  $as_root apt-get update -qq
  $as_root apt-get install -y -qq --no-install-recommends chromium
fi
