# Everything here needs Python >= 3.11, make and a package index; each target makes its own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENGINE_DIR ?= $(CURDIR)/.engine

.PHONY: demo test engine benchmark accuracy peers clean

demo: $(VENV)/.product  ## Run the main job on four real launches.
	@$(BIN)/python -m benchmarks.demo

test: $(VENV)/.dev  ## Formatting, lint, types, tests.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -m "not engine"

engine: $(VENV)/.dev  ## Compare with real vLLM (downloads about 700 MB, 4 GB on disk).
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray]'
	KVROOM_ENGINE_DIR=$(ENGINE_DIR) $(BIN)/python -m tests.engine.environment
	KVROOM_ENGINE_DIR=$(ENGINE_DIR) $(BIN)/python -m pytest -m engine tests/engine

benchmark: $(VENV)/.dev  ## Start-up time, memory, plans a second, megabytes of log a second.
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.reading

accuracy: $(VENV)/.product  ## Plans beside what public launches logged; CORPUS=DIR holds started/ and failing/.
	@test -d "$(CORPUS)/started" || { echo 'make accuracy needs CORPUS=DIR with started/ and failing/'; exit 2; }
	@$(BIN)/python -m benchmarks.accuracy --corpus "$(CORPUS)"

peers: $(VENV)/.product  ## Other planners on the same launches; CORPUS=DIR as for accuracy; needs a package index.
	@test -d "$(CORPUS)/started" || { echo 'make peers needs CORPUS=DIR with started/ and failing/'; exit 2; }
	@$(BIN)/python -m benchmarks.peers --corpus "$(CORPUS)"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "kvroom needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.product: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
