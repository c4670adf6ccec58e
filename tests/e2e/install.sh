#!/usr/bin/env bash
# From nothing to ghost text in Neovim and in the playground, with the seconds of each step: the wheels of the folder that is
# named are installed into a clean home; all that follows runs without a network, where Linux lets this user cut it off.
# PYTHON runs the tests; TEST_NVIM_FOLDER has the Neovims.
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

SECONDS=0
(
  cd "$home"
  HOME=$home "$python" -m venv .midfill
  HOME=$home .midfill/bin/pip install --quiet --disable-pip-version-check "$wheels"/midfill_model*.whl "$(ls "$wheels"/midfill-*.whl)[core]"
)
echo "$SECONDS s: midfill is installed, by two commands"

cd "$repository"
export TEST_MIDFILL=$home/.midfill/bin/midfill
HOME=$home TEST_MODEL=bundled "${offline[@]}" "$python" -m pytest --quiet --timeout 300 tests/e2e/neovim/test_installed.py
PAGES_TESTS=node_modules/tests/install.test.mjs "${offline[@]}" web/test/run.sh
