# Everything a reader, a teacher or a developer types. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SECONDEXPANSION:

# The active virtual environment, else one of our own.
VENV := $(or $(VIRTUAL_ENV),.venv)
PY := $(VENV)/bin/python
READY := $(VENV)/.fedlib-ready
PYTHON ?= python3
CPU_WHEELS ?= https://download.pytorch.org/whl/cpu
# A torch and a torchvision that go together: wheels of two sources may not.
PAIR := $(PY) -W ignore -c 'import torchvision.ops'
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
export PYTHONPATH := $(CURDIR)
export PYDEVD_DISABLE_FILE_VALIDATION := 1

LIB := $(shell find fedlib -name '*.py')
NB := $(wildcard notebooks/*.ipynb)
RUN := $(NB:%=_build/executed/%)
PAGES := $(shell find book -type f -not -name '*.pyc' -not -path 'book/api/*') _config.yml _toc.yml $(shell find tools -type f -not -name '*.pyc') tests/notebooks/wrong_answers.py
HTML := _build/html/index.html

help:  ## list these commands
	@awk -F":.*## " "/^[a-z-]+:.*## /{printf \"  make %-11s %s\\n\", \$$1, \$$2}" Makefile

book: $(READY)  ## run every notebook, as many at once as there are cores, and build the book into _build/html
	@$(MAKE) --no-print-directory --keep-going --jobs $(JOBS) $(RUN)
	@$(MAKE) --no-print-directory $(HTML)
	@echo "The book is ready: open file://$(CURDIR)/$(HTML)  (or: make serve)"

pages: $(READY)  ## see the book as it stands, with "not run here" in place of what has not been run
	@$(PY) -m tools.preview

test: $(READY)  ## lint, types, unit tests, every notebook with small parameters
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	OMP_NUM_THREADS=1 $(PY) -m pytest tests --ignore tests/site -n auto --dist loadgroup

differential: $(READY)  ## rounds of fit against loops over clients, for networks drawn at random, until it is stopped
	OMP_NUM_THREADS=1 PYTHONPATH=.:tests $(PY) -W ignore -m tests.differential

data-test: $(READY)  ## the tests that read real data files, from the folder that FEDLIB_DATA names
	$(PY) -m pytest tests/test_datasets.py tests/test_tabular.py -m data

flower-test: $(READY)  ## the tests of the Flower app, with Flower in an environment of its own (_build/flower)
	@[ -x _build/flower/bin/python ] || $(PY) -m venv _build/flower
	@$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$(_build/flower/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth"
	_build/flower/bin/python -m pip install --quiet --disable-pip-version-check --requirement flower-requirements.txt
	_build/flower/bin/python -m pytest tests/test_flower.py -m flower

site-test: $(HTML)  ## look at the built pages with headless Chromium
	$(PY) -m pytest tests/site -n auto

results: $(READY)  ## full-size runs behind the chapters' claims: only what is missing or stale
	$(PY) -m book.experiments

paper: $(READY)  ## the papers' own data and settings, hours, best on a GPU: only what is missing or stale
	$(PY) -m book.experiments --preset paper

bench: $(READY)  ## the speed against loops over clients, on one core; more cores
	$(PY) -m benchmarks
	$(PY) -m benchmarks.cores

bench-peers: $(READY)  ## the same work in Flower, pfl, BlazeFL, FedLab and FedJAX too, each installed into _build/peers
	$(PY) -m benchmarks.peers
	$(PY) -m benchmarks --peers

bench-gpu: $(READY)  ## kernels, precisions and CUDA graphs on this machine's GPU, up to 1,000 clients; eight minutes at most
	$(PY) -m benchmarks.gpu

student: $(READY)  ## copies of the chapters without solutions, with nbgrader's marks (ONLY=1.2,4.1 for some exercises)
	$(PY) -m tools.student $(ONLY)

pdf: $(HTML)  ## print the chapters and the whole book with headless Chromium, beside the pages' other downloads
	$(PY) -m tools.pdf

slides: $(RUN) $(READY)  ## the slide decks of book/slides, with the chapters' figures, tables and functions
	$(PY) -m tools.slides

golden: $(READY)  ## write tests/golden.json anew, where what the library computes was changed on purpose
	PYTHONPATH=.:tests $(PY) -m tests.golden

# mutmut runs the tests in a copy of the library, in the folder mutants.
mutants: $(READY)  ## change the code of a round bit by bit, to see that the tests notice (hours; ONLY='fedlib.keys*' for less)
	@[ -x _build/mutmut/bin/python ] || $(PY) -m venv _build/mutmut
	@$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$(_build/mutmut/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth"
	_build/mutmut/bin/python -m pip install --quiet --disable-pip-version-check 'mutmut>=3.8'
	PYTHONPATH= OMP_NUM_THREADS=1 _build/mutmut/bin/python -m mutmut run --max-children $(JOBS) $(if $(ONLY),'$(ONLY)')
	PYTHONPATH= _build/mutmut/bin/python -m mutmut results

badges:  ## write the repository's address from _config.yml into badges, set-up cells and pages
	$(PYTHON) -m tools.badges

fold: $(READY)  ## fold the cells with a title in the book, on Colab and in JupyterLab
	$(PY) -m tools.fold

lines:  ## the lines of code of the library
	$(PYTHON) -m tools.lines

# The committed notebooks have the links of the executed ones.
links: $(READY)  ## ask every address that the pages name whether it is still there
	$(VENV)/bin/jupyter-book build . --all --path-output _build/links --builder linkcheck

figures: $(READY)  ## draw the stills of the interactive figures
	$(PY) -m tools.stills

serve: $(HTML)  ## show the built book on http://localhost:8000
	$(PY) -m http.server --bind 127.0.0.1 --directory _build/html 8000

clean:  ## remove what was built (not the virtual environment)
	rm -rf _build build mutants *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(READY): requirements.txt tests/requirements.txt pyproject.toml
	@[ -x $(PY) ] || { echo "Creating the virtual environment $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@nvidia-smi -L >/dev/null 2>&1 || $(PAIR) 2>/dev/null || { \
	  echo "There is no NVIDIA card: asking $(CPU_WHEELS) for PyTorch without CUDA"; \
	  $(PY) -m pip --isolated install --quiet --disable-pip-version-check --retries 1 --index-url $(CPU_WHEELS) torch torchvision 2>/dev/null && $(PAIR) 2>/dev/null; \
	} || { \
	  echo "There was no answer, or no pair that works: PyTorch comes from the usual index, where it may bring 4 GB of CUDA"; \
	  $(PY) -m pip uninstall --quiet --yes torch torchvision 2>/dev/null || true; \
	}
	@echo "Installing what the book and its tests need (a download of about 1 GB, with CUDA 5 GB; some minutes)"
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[book,test]'
	@touch $@

# A page shows what papermill ran, with the notebook's own default parameters; a failed run leaves nothing behind.
# One thread a chapter: the networks are small, and chapters run side by side.
_build/executed/notebooks/%.ipynb: notebooks/%.ipynb $(LIB) $(READY) $$(wildcard book/results/$$**.json)
	@mkdir -p $(@D)
	@echo "Running $<"
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(PY) -m papermill --cwd notebooks --kernel python3 --log-level ERROR --no-progress-bar $< $@.part.ipynb
	@mv $@.part.ipynb $@
	@echo "Ran $<"

# From an empty folder: an incremental build keeps stale pages.
$(HTML): $(RUN) $(PAGES) $(LIB) $(READY)
	@rm -rf _build/html
	$(VENV)/bin/jupyter-book build . --all -W -n --keep-going --quiet
	@$(PY) -m tools.downloads

.PHONY: help book pages test differential data-test flower-test site-test results paper bench bench-peers bench-gpu student pdf slides golden mutants badges fold lines links figures serve clean
