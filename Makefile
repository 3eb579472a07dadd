# One command each: `make quickstart` shows the method at work, `make test`
# proves it. Both build .venv on first use and reuse it afterwards.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The newest Python for which all pinned packages have wheels, if there is one.
NEWEST := $(shell for p in python3.13 $$HOME/.pyenv/versions/3.13*/bin/python; \
  do $$p -c "import ensurepip" 2>/dev/null && echo $$p && break; done)

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-newest test-slow mutants lint format dist docs notebooks notebooks-run screenshot audit browser clean

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

quickstart: $(VENV)/.installed  ## learn scikit-learn's digits class by class, about two minutes
	$(BIN)/python -m experiments.digits

# CI machines also open the report in a browser; elsewhere that test runs
# when Chromium or Chrome happens to be installed, and skips otherwise.
test: $(VENV)/.installed-dev $(if $(CI),browser)  ## lint, types and the whole test suite
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
	$(if $(NEWEST),$(MAKE) test-newest)

# Every public name's example, in a second environment.
test-newest: $(VENV)/newest/.installed  ## the examples of the library on the newest Python
	$(VENV)/newest/bin/python -m pytest -n 2 mnemonics_jax

$(VENV)/newest/.installed: requirements-dev.txt requirements.txt
	$(NEWEST) -m venv $(VENV)/newest
	$(VENV)/newest/bin/python -m pip install -q --disable-pip-version-check -r requirements-dev.txt
	@touch $@

test-slow: $(VENV)/.installed-dev  ## the checks that take minutes; MNEMONICS_DATA_DIR adds real CIFAR-100
	XLA_FLAGS= $(BIN)/python -m pytest -m slow

mutants: $(VENV)/.installed-dev  ## break the code line by line and see whether tests notice; an hour
	PYTHONPATH=tests $(BIN)/python -m mutants.run

lint: $(VENV)/.installed-dev  ## ruff and pyright only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.installed-dev  ## rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A warning, such as a link that leads nowhere, is an error.
docs: $(VENV)/.installed-dev  ## build the site in build/site; open index.html there
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q --strict

# The sources are the .py files; the kernel is all that notebooks add to them.
notebooks: $(VENV)/.installed-dev  ## write the notebooks anew from their .py files
	$(BIN)/jupytext -q --update --to ipynb --opt cell_metadata_filter=-all --update-metadata \
	  '{"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "jupytext": null}' \
	  notebooks/*.py

# Stored notebooks have no outputs; the site shows these copies where there are some.
notebooks-run: $(VENV)/.installed-dev  ## run quickstart and inspect_run at full size, for `make docs`
	mkdir -p build/notebooks
	cd build/notebooks && for name in quickstart inspect_run; do \
	  $(abspath $(BIN))/jupyter execute ../../notebooks/$$name.ipynb --output=$(CURDIR)/build/notebooks/$$name.ipynb; done

# The run stays, so that only the page is made anew when its looks have changed.
screenshot: $(VENV)/.installed-dev browser  ## draw the report page at the top of the README anew
	$(BIN)/python -m experiments.digits --seeds=0,1,2 --workdir=build/screenshot
	$(BIN)/python docs/screenshot.py build/screenshot/report.html docs/pictures/report.png

# The wheel is built from the sdist, which proves that one complete.
dist: $(VENV)/.installed-dev  ## build a wheel and an sdist in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

# In an environment of its own: the audited set stays as it is. Strict, because
# a package that cannot be looked up has not been audited.
audit:  ## look up known vulnerabilities of the pinned packages; needs the network
	[ -x $(VENV)/audit/bin/pip-audit ] || { $(PYTHON) -m venv $(VENV)/audit && \
	  $(VENV)/audit/bin/python -m pip install -q --disable-pip-version-check pip-audit; }
	$(VENV)/audit/bin/pip-audit --strict --no-deps --disable-pip \
	  -r requirements.txt -r requirements-dev.txt

browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || true

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.txt setup.cfg | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-dev.txt
	@touch $@

clean:  ## remove the environment and caches; runs are kept
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist *.egg-info
