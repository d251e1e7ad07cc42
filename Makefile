# One command each; every target makes what it needs (virtual environment, broker jars) on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/combee
WHEELS := $(CACHE)/wheels/$(shell $(PYTHON) -c 'import sys; print("py%d%d" % sys.version_info[:2])')
READY := $(VENV)/.ready
LOCK = $(BIN)/uv pip compile pyproject.toml -q $(UPGRADE) --universal --python-version 3.11 --generate-hashes \
  --no-annotate --custom-compile-command "make lock"
HASHED := --require-hashes --only-binary :all:
CODE := services schemas experiments tests benchmarks docs examples deploy hatch_build.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-unit test-faults test-attacks test-deploy test-integrations test-typescript test-extras soak check format bench bench-compare docs lock wheel sbom audit clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Combee needs Python 3.11 or newer: make PYTHON=python3.12 …"; exit 1; }
	@echo "setup 1/3: virtual environment"
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p "$(WHEELS)"
	@echo "setup 2/3: $$(grep -c == requirements.lock) packages; some minutes, and pip is silent while it installs"
	@# Wheels are kept, so a second clone installs without network. pip says what it does: minutes of silence look dead.
	@$(BIN)/pip install --no-index --find-links "$(WHEELS)" $(HASHED) -r requirements.lock 2>/dev/null \
	  || { $(BIN)/pip download -d "$(WHEELS)" $(HASHED) -r requirements.lock \
	       && $(BIN)/pip install --no-index --find-links "$(WHEELS)" $(HASHED) -r requirements.lock; }
	@$(BIN)/pip install -q --no-deps --no-build-isolation --no-index -e .
	@touch $@

setup: $(READY) ## Make the virtual environment and fetch the broker's jars
	@echo "setup 3/3: the broker's jars"
	@$(BIN)/combee broker fetch

demo: setup ## The main job, end to end, with simulated agents and a simulated model
	@$(BIN)/combee demo

test: setup ## All tests: unit, then services, experiments, contract, kafka, e2e (embedded broker)
	$(BIN)/pytest tests/unit -n auto --dist worksteal -p no:schemathesis $(PYTEST_ARGS)
	@# Half of this is waiting for processes: four workers keep two cores busy.
	$(BIN)/pytest --ignore=tests/unit -n 4 --dist worksteal $(PYTEST_ARGS)

test-unit: $(READY) ## Unit tests only: no broker, no network
	$(BIN)/pytest tests/unit -n auto --dist worksteal -p no:schemathesis $(PYTEST_ARGS)

test-faults: setup ## The long fault tests
	$(BIN)/pytest tests/faults --faults -n 2 --dist worksteal $(PYTEST_ARGS)

test-attacks: $(READY) ## Malicious producers, simulated; all attacks and protections: combee experiment attacks
	$(BIN)/pytest tests/attacks --attacks -n 2 --dist worksteal $(PYTEST_ARGS)

soak: setup ## Half load and random faults for SOAK_MINUTES
	$(BIN)/pytest tests/faults/test_soak.py --faults --soak-minutes $(or $(SOAK_MINUTES),20) --seed $(or $(SEED),1) $(PYTEST_ARGS)

test-deploy: setup ## The image and Compose on a container engine; COMBEE_TEST_ENGINE=start starts one (Debian, root); KILLS=5: only Kafka killed so often
	@# func_only: the start of a container, which has a limit of its own, is no part of the first test that needs it.
	PYTHONPATH=tests $(BIN)/python -m support.engine sh -c '$(if $(KILLS),$(BIN)/pytest tests/deploy/test_kills.py -s --kills $(KILLS) $(PYTEST_ARGS); exit $$?;) \
	$(BIN)/pytest tests/deploy $(PYTEST_ARGS) \
	  && if docker version > /dev/null 2>&1; \
	     then $(BIN)/pytest tests/kafka --broker=testcontainers -o timeout_func_only=true -n 2 --dist worksteal $(PYTEST_ARGS); \
	     else echo "SKIPPED tests/kafka in containers: no container engine answers"; fi'

test-integrations: setup ## Each integration in an environment of its own, or some: make test-integrations NAMES="gepa mcp"
	PYTHONPATH=tests $(BIN)/python -m support.integrations $(NAMES)

test-typescript: setup ## The TypeScript client, packed, against a running gateway; skipped without node and npm
	@if command -v node > /dev/null && command -v npm > /dev/null; then cd clients/typescript && npm ci --no-audit --no-fund; fi
	COMBEE_TEST_COMMAND=$(abspath $(BIN))/combee $(BIN)/pytest -c tests/integrations/pytest.ini --rootdir . \
	  --confcutdir tests/integrations tests/integrations/typescript $(PYTEST_ARGS)

check: $(READY) ## Format, lint, types, import rules, words
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/pytest -q tests/contract/project/test_architecture.py tests/contract/project/test_words.py

format: $(READY) ## Format the code
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

bench: setup ## Benchmarks, or some: make bench BENCH="overhead scaling"; results in benchmarks/results/
	$(BIN)/python -m benchmarks $(BENCH)

bench-compare: setup ## Processor time against another commit: make bench-compare BASE=main PAIRS=8; 1 only if over 5 % worse
	$(BIN)/python -m benchmarks.compare $(BASE) $(if $(PAIRS),--pairs $(PAIRS))

docs: $(READY) ## The documentation as a site, in site/; a dead link fails. To search it: python3 -m http.server -d site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build # never with --quiet: that hides warnings from strict, too

lock: $(READY) ## Pin every package with its hashes; newest versions: make lock UPGRADE=--upgrade
	@# Not the frameworks' extras: their libraries want different versions of one another.
	$(LOCK) --extra all --extra azure --extra msk --group dev -o requirements.lock
	$(LOCK) --extra cli --extra dashboard --extra otel --extra signatures --extra sim --constraint requirements.lock -o deploy/requirements.lock
	echo hatchling | $(LOCK:pyproject.toml=-) --constraint requirements.lock -o deploy/build.lock

wheel: $(READY) ## The wheel and the sdist, in dist/; PROJECT_URL=https://… gives the README and the index absolute links
	$(BIN)/hatchling build -t wheel -t sdist

test-extras: $(READY) ## Each extra by itself, from the wheel into a fresh environment (network); some: PYTEST_ARGS="-k http"
	$(BIN)/pytest tests/extras --extras -n 0 $(PYTEST_ARGS)

sbom: $(READY) ## What the image installs: dist/sbom.json (CycloneDX) and dist/licences.md
	@$(PYTHON) -m venv --clear --without-pip dist/image
	@$(BIN)/pip --python dist/image/bin/python install -q --find-links "$(WHEELS)" $(HASHED) -r deploy/requirements.lock
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o dist/sbom.json dist/image/bin/python
	$(BIN)/pip-licenses --python dist/image/bin/python --format markdown --with-urls --output-file dist/licences.md

audit: $(READY) ## Known vulnerabilities of what the lock pins; exit 2 where they cannot be looked up
	@$(BIN)/python deploy/audit.py requirements.lock

clean: ## Remove the virtual environment, the site and caches of tools
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis
