# The whole set-up of a fresh machine is `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The same environment with the packages that only tests, benchmarks and generators need.
READY_DEV := $(VENV)/.ready-dev
# Bytecode of all packages would take longer than their download; Python writes it for the modules that are imported.
INSTALL := $(BIN)/python -m pip install --no-compile --constraint constraints.txt

.PHONY: demo fashion test test-long stress team check generated ui bench bench-gpu clean help

help:
	@echo "make demo   environment, then train, audit and report the digits study (reports/index.html)"
	@echo "make fashion  environment and Fashion-MNIST, then the same with the fashion study, in some 20 minutes on two cores"
	@echo "make test   environment, then the short tests"
	@echo "make test-long  the tests that train, audit or draw for seconds or minutes"
	@echo "make stress   kills, races, flipped bits, failing disks and malformed files; one line a kind"
	@echo "make team   a team's server on loopback (PostgreSQL, S3, users), and four workers on it"
	@echo "make check  the linter and, in a minute, the tests of all that trains nothing and draws little"
	@echo "make generated  what the code says of itself, written again: README's lists, docs/, schemas, golden forms"
	@echo "make ui     MLflow's pages on http://127.0.0.1:5000"
	@echo "make bench  measured comparisons, as ratios, in some minutes"
	@echo "make bench-gpu  tests, runs and steps on a CUDA device, in ten minutes at most"
	@echo "make clean  remove the environment and everything generated; runs and reports stay"

$(READY): pyproject.toml packages/fa_lint/pyproject.toml constraints.txt
	@echo "Installing fa_registry and about 100 packages in $(VENV): 1.5 GB on disk with the CPU build of torch, more with a CUDA"
	@echo "build. The installation takes one to two minutes on a fast connection."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable . --editable packages/fa_lint
	touch $(READY)

$(READY_DEV): $(READY)
	@echo "Installing about 50 packages for tests in $(VENV): 0.9 GB on disk. The installation takes about 1 minute on a fast connection."
	$(INSTALL) --editable ".[dev]"
	touch $(READY_DEV)

demo: $(READY)
	$(BIN)/fa-registry run digits

# The paper's story on real images. Debian's package has the files; where they cannot be installed the study says what to do.
APT := apt-get update -qq && apt-get install -y -qq dataset-fashion-mnist

fashion: $(READY)
	@$(BIN)/fa-registry data check fashion_mnist >/dev/null 2>&1 || { echo "installing dataset-fashion-mnist"; \
		sh -c "$(APT)" >/dev/null 2>&1 || sudo -n sh -c "$(APT)" >/dev/null 2>&1 || true; }
	$(BIN)/fa-registry run fashion --editions 2026-05,2026-12

test: $(READY_DEV)
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

test-long: $(READY_DEV)
	$(BIN)/python -m pytest -n auto --dist worksteal -m long

stress: $(READY_DEV)
	$(BIN)/python -m tests.stress

team: $(READY_DEV)
	$(BIN)/python -m benchmarks.ten_thousand_a_day --minutes 1 --workers 4

# What takes long: rooms that train, pages with their pictures, examples of docs.
SLOW := benchmarks commands conformance end_to_end external methods own_models security studies tasks stress tracking training \
	test_golden.py lint/test_command.py reporting/test_environment.py \
	$(addprefix reporting/test_,analyses_pages.py asked_for.py comparison.py figures.py index.py pages.py render.py) \
	analyses/test_sensitivity.py docs/test_code.py reference/test_reference.py reference/test_schemas.py statistics/test_coverage.py

check: $(READY_DEV)
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not browser and not long" $(addprefix --ignore tests/,$(SLOW))

generated: $(READY_DEV)
	$(BIN)/python -m fa_registry.reference --write
	$(BIN)/python -m tests.reporting.test_golden_forms

ui: $(READY)
	-$(BIN)/fa-registry doctor  # what it finds amiss closes no page
	$(BIN)/fa-registry ui

bench: $(READY_DEV)
	$(BIN)/python -m benchmarks

bench-gpu: $(READY_DEV)
	$(BIN)/python -m benchmarks.gpu

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
