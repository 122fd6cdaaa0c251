# Needs Python 3.11 or newer and make; everything else is installed into .venv.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
# More than the two cores of CI: many tests wait for processes, pauses and silence.
WORKERS ?= 5
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
	--no-header --python-version 3.11 --upgrade

# Where this is set, each of the many processes of a test run compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test check coverage bench docs transcripts setup torture requirements types clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.package-stamp $(VENV)/.embedded-stamp ## Start asterism and open a chat (ARGS="..." is passed on)
	@$(BIN)/asterism $(ARGS)

test: setup ## Run every test, and the checks beside them (ARGS="..." goes to pytest)
	@$(MAKE) --no-print-directory check > $(VENV)/check.log 2>&1 & checks=$$!; \
	echo "The checks run beside the tests; their result comes at the end."; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS); tests=$$?; \
	wait $$checks; checks=$$?; cat $(VENV)/check.log; \
	if [ $$checks -ne 0 ]; then echo "The checks failed: see above." >&2; fi; \
	if [ $$tests -ne 0 ]; then echo "The tests failed: see their summary above." >&2; fi; \
	exit $$((tests || checks))

check: setup ## Format, lint, types, layers, and files on the way of a call
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python -m bench.paths --check

coverage: setup ## Run every test with branch coverage, which takes twice as long
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cov --cov-report= $(ARGS)
	$(BIN)/coverage report $(if $(ARGS),--fail-under=0)

bench: setup ## Measure the cost of a turn against the floor (ARGS="..." is passed on)
	$(BIN)/python -m bench $(ARGS)
	$(BIN)/python -m bench.growth

torture: setup ## Kill, fill and fuzz for a long time (ARGS="..." goes to pytest)
	ASTERISM_TORTURE=1 $(BIN)/python -m pytest -m torture -n $(WORKERS) --dist worksteal $(ARGS)

docs: $(VENV)/.docs-stamp ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

transcripts: setup ## Make the transcripts and pictures of the documentation anew from real runs
	$(BIN)/python -m bench.transcripts $(ARGS)

setup: $(VENV)/.package-stamp $(VENV)/.dev-stamp ## Make .venv with all that development needs

requirements: $(VENV)/.dev-stamp ## Pin the newest versions that pyproject.toml allows
	$(COMPILE) --group uv -o requirements/uv.txt
	$(COMPILE) --group build -o requirements/build.txt
	$(COMPILE) pyproject.toml -o requirements/runtime.txt
	$(COMPILE) pyproject.toml --extra embedded --extra documents --extra encoder -c requirements/runtime.txt -o requirements/embedded.txt
	$(COMPILE) pyproject.toml --all-extras --group dev -c requirements/build.txt \
	  -c requirements/embedded.txt -o requirements/dev.txt
	$(COMPILE) --group docs -c requirements/dev.txt -o requirements/docs.txt

types: setup ## Write the types of the home without await anew, after a change of a public verb
	$(BIN)/python -m bench.sync_types

clean: ## Remove .venv and everything that was built
	rm -rf $(VENV) site dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. A stamp is newer than the file it was installed from, so nothing is done twice.

$(BIN)/python:
	@for candidate in "$(PYTHON)" python3.14 python3.13 python3.12 python3.11; do \
	  "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  "$$candidate" -c 'import ensurepip, venv' 2>/dev/null || { missing=$$candidate; continue; }; \
	  echo "Making $(VENV) with $$("$$candidate" --version) ..."; \
	  "$$candidate" -m venv --clear $(VENV) && exit 0; \
	  rm -rf $(VENV); exit 1; \
	done; \
	if [ -n "$$missing" ]; then \
	  echo "$$missing cannot make virtual environments: install its venv module" \
	    "(on Debian and Ubuntu the package python3-venv) and run make again." >&2; \
	else \
	  echo "asterism needs Python 3.11 or newer and \"$(PYTHON)\" is not that: install one," \
	    "or name it as in make PYTHON=/path/to/python3.12." >&2; \
	fi; exit 1

# uv installs in seconds what takes pip half a minute. Where there is no uv, pip does it all.
$(VENV)/.uv-stamp: requirements/uv.txt $(BIN)/python
	@echo "Installing uv ..."
	@$(PIP) install --quiet --only-binary :all: --require-hashes -r $< || \
	  echo "There is no uv for this machine; pip takes its place."
	@touch $@

define install
@echo "Installing $(1) ..."
@{ [ -x $(BIN)/uv ] && $(BIN)/uv pip install --compile-bytecode --python $(BIN)/python $(2); } || $(PIP) install $(2)
@touch $@
endef

$(VENV)/.runtime-stamp: requirements/runtime.txt $(VENV)/.uv-stamp
	$(call install,what asterism needs to run,--require-hashes -r $<)

# Where there is no build of it for this machine, asterism goes without an embedded model and says so.
$(VENV)/.embedded-stamp: requirements/embedded.txt $(VENV)/.uv-stamp
	@echo "Installing what runs the embedded model ..."
	@{ [ -x $(BIN)/uv ] && $(BIN)/uv pip install --only-binary :all: --python $(BIN)/python --require-hashes -r $<; } \
	  || $(PIP) install --quiet --only-binary :all: --require-hashes -r $< \
	  || echo "There is no embedded model for this machine; name another in asterism.toml."
	@touch $@

$(VENV)/.build-stamp: requirements/build.txt $(VENV)/.uv-stamp
	$(call install,what builds the package,--require-hashes -r $<)

$(VENV)/.package-stamp: pyproject.toml $(VENV)/.runtime-stamp $(VENV)/.build-stamp
	$(call install,asterism itself,--no-deps --no-build-isolation -e .)

$(VENV)/.dev-stamp: requirements/dev.txt $(VENV)/.runtime-stamp
	$(call install,the tools of development and PostgreSQL for the tests,--require-hashes -r $<)

$(VENV)/.docs-stamp: requirements/docs.txt $(VENV)/.uv-stamp
	$(call install,the tools of the documentation,--require-hashes -r $<)
