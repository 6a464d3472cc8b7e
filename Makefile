# `make demo` fits measured data. `make test` runs the tests except the slow ones, in eleven minutes on two slow cores;
# `make test-all` runs all of them, in an hour and more there; `make test-processors` runs all of them with the instructions of several
# processors. ARGS are those of pytest.
# `make bench ARGS="poisson --seeds 1"` runs benchmarks, all of them without ARGS; `make bench-gpu` measures a GPU. `make gallery ARGS="burgers heat_rod"` solves
# problems of the gallery anew and writes docs/gallery.md and its pages, `make gallery ARGS=--pages` writes them from what is
# known. All make .venv first.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# Small networks run many times slower on two busy threads than on one.
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1

.PHONY: demo test test-all test-processors bench bench-gpu gallery docs check format lock clean

demo: .venv/ready
	$(BIN)/sciml fit problems/lynx_hare.py --out runs/lynx_hare

test: .venv/ready
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

test-all: .venv/ready
	$(BIN)/python -m pytest $(ARGS)

# The kernels of PyTorch and those of the BLAS under NumPy and SciPy: no test may depend on the last bits.
test-processors: .venv/ready
	@for kernels in "default Sandybridge" "avx2 Haswell" "avx512 SkylakeX"; do set -- $$kernels; \
		if [ $$1 != default ] && ! grep -qw "$$1f\?" /proc/cpuinfo; then echo "no $$1 on this processor"; continue; fi; \
		echo "ATEN_CPU_CAPABILITY=$$1 OPENBLAS_CORETYPE=$$2"; \
		ATEN_CPU_CAPABILITY=$$1 OPENBLAS_CORETYPE=$$2 $(BIN)/python -m pytest $(ARGS) || exit; \
	done

bench: .venv/ready
	$(BIN)/python -m tests.benchmarks $(ARGS)

bench-gpu: .venv/ready
	$(BIN)/python -m tests.benchmarks.scaling --device cuda

gallery: .venv/ready
	$(BIN)/python -m tests.benchmarks.gallery $(ARGS)

# The site, into build/docs: every snippet and tutorial is executed, and every warning is an error.
docs: .venv/ready
	$(BIN)/python -m pytest -q -m "not slow" tests/house/test_docs.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/check_links.py

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/ready: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found; name one: make PYTHON=/path/to/python3 demo"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# The exact versions that both commands install. A local build tag (+cpu) is dropped: the version is what matters.
lock:
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 -e '.[dev]'
	.venv-lock/bin/python -m pip freeze --exclude-editable | sed 's/+cpu//' > requirements.lock
	rm -rf .venv-lock

clean:
	rm -rf .venv runs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
