#!/bin/sh
# Installs vllm-router from PyPI into an environment of its own, once: install_router.sh FOLDER
#
# FOLDER/bin/vllm-router then runs it, and FOLDER/READY names the version. Downloads 30 MB. Needs Linux on x86-64.
set -eu

VERSION=0.1.17

folder=$1
if [ "$(cat "$folder/READY" 2>/dev/null)" = "$VERSION" ]; then
    exit 0
fi
${PYTHON:-python3} -m venv --clear "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check "vllm-router==$VERSION"
echo "$VERSION" >"$folder/READY"
