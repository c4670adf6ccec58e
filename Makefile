PYTHON ?= python3
BIN := .venv/bin
CONSTRAINTS := $(if $(shell command -v nvidia-smi),constraints.txt,constraints-cpu.txt)

TEST_NVIM := build/test-nvim

.PHONY: setup demo test test-nvim test-vscode lint format clean

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt constraints-cpu.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "midfill needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@echo 'Installing midfill and what it needs into .venv (some minutes the first time) ...'
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable . --group dev
	@touch $@

demo: setup
	$(BIN)/midfill demo

test: setup
	$(BIN)/python -m pytest

# Each supported Neovim, unpacked from Debian's packages (no root needed), with the real server, core and model.
test-nvim: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement tests/e2e/neovim/requirements.txt
	$(BIN)/python tests/e2e/neovim/install.py $(TEST_NVIM)
	TEST_NVIM_FOLDER=$(TEST_NVIM) $(BIN)/python -m pytest tests/e2e/neovim

# The packaged extension in a real workbench (code-server in headless Chromium), with the real server, core and model.
test-vscode: setup
	tests/e2e/vscode/run.sh

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv build dist *.egg-info
