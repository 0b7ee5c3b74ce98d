# `make help` lists what there is to do. Needs Python 3.11 or newer and make; everything else is installed below.

PYTHON ?= $(shell for it in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$it -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$it && break; done)
PIP = bin/python -m pip install --quiet --disable-pip-version-check
# Tests in parallel; on a large machine more help.
JOBS ?= 2
# Further arguments for pytest or the benchmark: make test ARGS="-k stream".
ARGS ?=

.PHONY: help run test test-full lint format bench clean .venv .venv-sdk03 .venv-bench .js-sdk
.DEFAULT_GOAL := help

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

run: .venv/.installed  ## start the gateway on 127.0.0.1:9090 with a demo agent; ARGS="--port 9091"
	@exec .venv/bin/vitalgate serve --demo $(ARGS)

test: lint .venv-sdk03/.installed .js-sdk  ## all checks, and the tests that take less than ten minutes
	.venv/bin/pytest -q -n $(JOBS) -m "not long" $(ARGS)

test-full: lint .venv-sdk03/.installed .js-sdk  ## the same with soak, fuzz and large-fleet tests
	.venv/bin/pytest -q -n $(JOBS) $(ARGS)

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

clean:  ## remove the virtual environments and caches
	rm -rf .venv .venv-sdk03 .venv-bench .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf build dist *.egg-info $(JS_SDK:%=%/node_modules)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv: .venv/.installed-dev
.venv-sdk03: .venv-sdk03/.installed
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
.venv-sdk03/.installed:
	$(call venv,.venv-sdk03)
	@echo "installing a2a-sdk 0.3.26 for the tests ..."
	@.venv-sdk03/$(PIP) 'a2a-sdk[http-server]==0.3.26'
	@touch $@

# Clients made with the JavaScript SDK, where there is a node: without one the tests skip them, and say so.
JS_SDK = tests/fakes/js/sdk13 tests/fakes/js/sdk03
NPM_INSTALL = npm install --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null

ifneq ($(shell command -v node 2>/dev/null),)
.js-sdk: $(JS_SDK:%=%/node_modules/.installed)
else
.js-sdk: ;
endif

%/node_modules/.installed: %/package.json
	@command -v npm >/dev/null || { echo "there is node, but no npm; on Debian and Ubuntu: apt install npm" >&2; exit 1; }
	@echo "installing the JavaScript SDK of $* for the tests ..."
	@cd $* && $(NPM_INSTALL)
	@touch $@

.venv-bench/.installed: pyproject.toml
	$(call venv,.venv-bench)
	@echo "installing vitalgate and what it is measured against ..."
	@.venv-bench/$(PIP) -e '.[bench]'
	@touch $@
