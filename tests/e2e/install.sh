#!/usr/bin/env bash
# From nothing to ghost text in Neovim and in the playground, with the seconds of each step: the wheels of the folder that is
# named are installed into a clean home; all that follows runs without a network, where Linux lets this user cut it off.
# PYTHON runs the tests; TEST_NVIM_FOLDER has the Neovims; `make pages` has built the playground. Every step ends in time.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
wheels=$(cd "$1" && pwd)
python=$(cd "$(dirname "$PYTHON")" && pwd)/$(basename "$PYTHON")
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT

offline=()
if unshare --net --map-root-user ip link set lo up 2> /dev/null; then
  # shellcheck disable=SC2016  # its own "$@"
  offline=(unshare --net --map-root-user sh -c 'ip link set lo up && exec "$@"' sh)
else
  echo 'With the network: this user cannot cut it off.'
fi

# SECONDS COMMAND...: in the clean home, for at most so long; what is well takes a tenth of it.
at_home() { HOME=$home timeout --kill-after 10 "$@"; }

cd "$repository"
tests/e2e/install_chromium.sh
at_home 900 "$python" packaging/step.py build/test-install.log 'Installing midfill by two commands' sh -c \
  '"$1" -m venv "$HOME/.midfill" && "$HOME/.midfill/bin/pip" install --disable-pip-version-check "$2"/midfill_model*.whl "$(ls "$2"/midfill-*.whl)[core]"' \
  sh "$python" "$wheels"

export TEST_MIDFILL=$home/.midfill/bin/midfill
TEST_MODEL=bundled at_home 300 "${offline[@]}" "$python" -m pytest --quiet tests/e2e/neovim/test_installed.py
at_home 300 "${offline[@]}" web/test/run.sh node_modules/tests/install.test.mjs
