# One command each: `make quickstart` shows the method at work, `make test`
# proves it. Both build .venv on first use and reuse it afterwards.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The newest Python for which all pinned packages have wheels, if there is one.
NEWEST := $(shell for p in python3.13 $$HOME/.pyenv/versions/3.13*/bin/python; \
  do $$p -c "import ensurepip" 2>/dev/null && echo $$p && break; done)

# $(call install,PYTHON,FILE): the packages that a file pins. On CI machines they
# are those of requirements.lock, compared with their checksums; what has no wheel
# is built with the setuptools from there.
PIP := -m pip install -q --disable-pip-version-check
ifdef CI
define install
sed -n '/^setuptools==/,/[^\\]$$/p' requirements.lock > $(VENV)/build.lock
$(1) $(PIP) --require-hashes --no-deps -r $(VENV)/build.lock
$(1) $(PIP) --require-hashes --no-deps --no-build-isolation -r requirements.lock
endef
else
define install
$(1) $(PIP) -r $(2)
endef
endif

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-newest test-slow mutants parity torture lint format dist docs notebooks owner notebooks-run screenshot audit sbom lock browser clean

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

$(VENV)/newest/.installed: requirements-dev.txt requirements.txt requirements.lock
	$(NEWEST) -m venv $(VENV)/newest
	$(call install,$(VENV)/newest/bin/python,requirements-dev.txt)
	@touch $@

test-slow: $(VENV)/.installed-dev  ## the checks that take minutes; MNEMONICS_DATA_DIR adds real CIFAR-100
	XLA_FLAGS= $(BIN)/python -m pytest -m slow

mutants: $(VENV)/.installed-dev  ## break the code line by line and see whether tests notice; hours
	PYTHONPATH=tests $(BIN)/python -m mutants.run

# BASE is any commit whose commands have the same flags.
BASE ?= de09587
parity: $(VENV)/.installed-dev  ## compare twelve small runs with those of BASE=de09587, to the bit
	$(BIN)/python tests/parity.py --base=$(BASE) $(if $(ONLY),--only=$(ONLY))

# SEED repeats what was drawn before; it is printed first.
MINUTES ?= 60
torture: $(VENV)/.installed-dev  ## kill, fill, damage and move runs for MINUTES=60, and compare what they end with
	PYTHONPATH=tests $(BIN)/python -m torture.run --minutes=$(MINUTES) $(if $(SEED),--seed=$(SEED))

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

# Until then they name OWNER, and the notebooks' Colab badges lead nowhere.
owner:  ## write whose copy this is into addresses and badges: NAME=you
	$(if $(NAME),,$(error NAME= is missing: make owner NAME=you))
	perl -pi -e 's#OWNER/mnemonics_jax#$(NAME)/mnemonics_jax#g' notebooks/*.py notebooks/*.ipynb docs/install.md README.md

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

# Strict, because a package that cannot be looked up has not been audited.
audit: $(VENV)/tools/.installed  ## look up known vulnerabilities of the locked packages; needs the network
	$(VENV)/tools/bin/pip-audit --strict --require-hashes --disable-pip \
	  -r requirements.lock -r requirements-tools.lock

sbom: $(VENV)/tools/.installed  ## write build/sbom.json: the locked packages and their checksums (CycloneDX)
	mkdir -p build
	$(VENV)/tools/bin/cyclonedx-py requirements requirements.lock \
	  --output-reproducible --of JSON -o build/sbom.json

# After a change of requirements*.txt. Hashes are those of all files that PyPI has of
# a version, so that one lock serves every Python and platform.
lock: $(VENV)/tools/.installed  ## write requirements.lock and requirements-tools.lock anew; needs the network
	$(VENV)/tools/bin/uv $(LOCK) --no-deps requirements-dev.txt -o requirements.lock
	$(VENV)/tools/bin/uv $(LOCK) requirements-tools.txt -o requirements-tools.lock
LOCK := pip compile -q --no-config --universal --generate-hashes --no-annotate \
  --no-header --python-version 3.11.7 --default-index https://pypi.org/simple

# An environment of their own: the audited set stays as it is.
$(VENV)/tools/.installed: requirements-tools.lock
	$(PYTHON) -m venv $(VENV)/tools
	$(VENV)/tools/bin/python $(PIP) --require-hashes -r requirements-tools.lock
	@touch $@

browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || true

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.txt requirements.lock setup.cfg | $(VENV)/bin/python
	$(call install,$(BIN)/python,requirements.txt)
	$(BIN)/python $(PIP) --no-deps $(if $(CI),--no-build-isolation) -e .
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(call install,$(BIN)/python,requirements-dev.txt)
	@touch $@

clean:  ## remove the environment and caches; runs are kept
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist *.egg-info
