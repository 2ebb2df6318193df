# Interlock: `make run` shows it at work, offline and without a key. Needs Python 3.11, git and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Compiling is left to `COMPILE`, which uses every core. Setuptools warns of every editable installation.
INSTALL := PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# The first installation takes from half a minute to several: a line tells how far it is. $(1): what to install.
INSTALL_SHOWN = { $(INSTALL:--quiet=--progress-bar=off) $(1) || echo >$(VENV)/failed; } | $(BIN)/python .ci/pip_progress.py; \
	test ! -e $(VENV)/failed || { rm $(VENV)/failed; exit 1; }
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true # packages carry files that no Python reads
# -P: the rooms at the root (state/, tools/, …) must not become top-level modules.
RUN := $(BIN)/python -P
# Many tests wait for a process or a terminal, so more workers than a small machine has cores.
TESTS ?= -n 6 --dist worksteal
# Tests make tens of thousands of files. They go into memory, unless TMPDIR is set or there is too little room.
MEMORY := /dev/shm
IN_MEMORY = $(if $(TMPDIR),,$(shell test -w $(MEMORY) && findmnt -no OPTIONS -T $(MEMORY) 2>&1 | grep -qv noexec && \
	test "$$(df -k --output=avail $(MEMORY) | tail -1)" -gt 4000000 && echo TMPDIR=$(MEMORY)))
# Tests start interpreters by the hundred: none compiles again what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run fleet test sweeps postgres properties format check diagrams pictures bench scale mutants release

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/installed ## the offline demo: a failing test is repaired, with an approval on the way
	@$(RUN) docs/demo.py

fleet: $(VENV)/installed ## PostgreSQL, two workers, ten repairs at once, and the page; Ctrl-C ends it
	@$(INSTALL) --editable '.[fleet]'
	@$(RUN) docs/fleet_demo.py

test: $(VENV)/installed-dev ## all tests but the layout's, of the long sweeps a sample (TESTS='-k name' for some)
	$(IN_MEMORY) $(BIN)/pytest --ignore tests/test_layout.py --ignore tests/test_others_modules.py $(TESTS)

sweeps: $(VENV)/installed-dev ## kills and stops at every moment, shell lines under bash (SWEEP_PART=0/3: a third of them)
	$(BIN)/pytest -m sweep $(TESTS) $$(grep -rlE --include='*.py' 'mark\.(sweep|sample)|sampled\(' tests)

postgres: $(VENV)/installed-dev ## tests and kills again, with every store in PostgreSQL (SWEEP_PART=0/24: some of them)
	$(IN_MEMORY) TEST_STORE=postgresql $(BIN)/pytest -m '$(SWEEPS)' $(TESTS) \
		$(addprefix tests/,engine travel web session mcp_runs) \
		$(addprefix tests/cli/test_,whole_runs.py audit_command.py who_decided.py decisions.py acp.py serve.py) \
		$(addprefix tests/test_,plan.py faults.py effects.py subtasks.py api_faults.py edit_kills.py foreign_kills.py search_kills.py cancelling.py)

properties: $(VENV)/installed-dev ## ten times as many generated examples as the tests try
	$(BIN)/pytest -m hypothesis --hypothesis-profile=sweep $(TESTS)

format: $(VENV)/installed-dev ## format the code, and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: $(VENV)/installed-dev ## format, lint, types, layout, and that generated files are current
	! git grep -nE '^(<{7}|>{7}) '
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/pytest tests/test_layout.py tests/test_others_modules.py
	$(BIN)/interlock diagrams --check
	$(RUN) docs/generated.py --check

diagrams: $(VENV)/installed ## rewrite diagrams/ and the generated blocks of the pages
	$(BIN)/interlock diagrams --write
	$(RUN) docs/generated.py --write

pictures: $(VENV)/installed-dev ## record README's pictures and casts: first five minutes, three journeys, the page
	@$(RUN) docs/five_minutes.py
	@$(RUN) docs/journeys.py
	@$(RUN) docs/page_picture.py

bench: $(VENV)/installed ## start-up, overhead per turn, bytes per turn, memory, modules an approval passes
	@$(RUN) benchmarks/run.py

scale: $(VENV)/installed ## measure a large store, a large tree and a long session (PART='store --of CLONE'); half an hour
	@$(RUN) benchmarks/scale.py $(PART)

mutants: $(VENV)/installed-dev ## change policy, tools or engine in one place at a time (ROOM='policy -n 50'); list what no test finds
	@$(INSTALL) --target $(VENV)/mutants --upgrade 'cosmic-ray>=8.7' # apart: it brings packages that change how ours work
	@PYTHONPATH=$(VENV)/mutants $(RUN) benchmarks/mutants.py $(or $(ROOM),policy)

release: $(VENV)/installed-dev ## build sdist and wheel into dist/, checked and tried in a clean environment
	.ci/release dist

# Stamps: nothing is installed again until pyproject.toml changes, or a room is new.
ROOMS := $(wildcard */py.typed)

$(VENV)/installed: pyproject.toml setup.py $(ROOMS) | $(BIN)/python
	@echo "installing into $(VENV): about 80 packages, 240 MB on disk …"
	@$(call INSTALL_SHOWN,--editable .)
	@echo "compiling …"
	@$(COMPILE)
	@touch $@

$(VENV)/installed-dev: pyproject.toml setup.py $(ROOMS) | $(BIN)/python
	@echo "installing into $(VENV), with what tests and checks need: about 190 packages …"
	@$(call INSTALL_SHOWN,--editable '.[dev]')
	@echo "compiling …"
	@$(COMPILE)
	@touch $(VENV)/installed $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Interlock needs Python 3.11 or newer, this is " + sys.version.split()[0] + \
		". Name another with: make PYTHON=python3.11 …" if sys.version_info < (3, 11) else 0)'
	@echo "creating $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --upgrade pip || true # Python 3.11 brings one that takes three times as long
