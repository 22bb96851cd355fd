"""The documents and studies of `same_bits`: small, drawn from a seed, of every kind."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fedtopics import Columns, Corpus

CLIENTS = {"east": 240, "north": 210, "west": 180}  # documents
DIMENSION, THEMES, ROUNDS = 16, 6, 3
BASES = {  # TOML, as all below, with ; for a new line
    "gfedntm": "n_components = 6; max_rounds = 12",
    "lda": "n_components = 6; max_rounds = 12; batch_size = 128",
    "nmf": "n_components = 6; max_rounds = 10",
    "auto": "n_components = 6; max_rounds = 10",
    "flda": "n_components = 6; max_rounds = 3; iterations = 60; min_new_documents = 20",
    "mixture": "n_components = 6; max_rounds = 20",
    "kmeans": "n_components = 6; max_rounds = 20",
    "discriminative": "n_components = 6; max_rounds = 20",
    "fstc": "n_components = 6; max_rounds = 4; local_steps = 8; batch_size = 60",
    "fsccl": "n_components = 6; max_rounds = 4; local_steps = 8; batch_size = 60; deletion = 0",
}
AVERAGED = "norm = 'server'; local_steps = 3; optimizer"
STUDIES = {
    **{
        f"gfedntm/{network} {norm}": f"network = '{network}'; norm = '{norm}'"
        for network in ("prodlda", "neurallda", "combinedtm", "zeroshottm")
        for norm in ("sync", "server", "local")
    },
    "gfedntm/preset paper": "preset = 'paper'",
    "gfedntm/preset mixtures": "preset = 'mixtures'; network = 'neurallda'",
    "gfedntm/sgd": "optimizer = 'sgd'; learning_rate = 0.02",
    "gfedntm/fedavg": f"{AVERAGED} = 'fedavg'",
    "gfedntm/fedadam": f"{AVERAGED} = 'fedadam'",
    "gfedntm/fedavg local": "norm = 'local'; local_steps = 3; optimizer = 'fedavg'",
    "gfedntm/fedavg combinedtm": f"{AVERAGED} = 'fedavg'; network = 'combinedtm'",
    "gfedntm/anchors": "initialisation = 'anchors'",
    "gfedntm/validation": "validation_share = 0.25; validate_every = 2; patience = 1; "
    "optimizer = 'sgd'; learning_rate = 1.0; max_rounds = 20",
    "gfedntm/tolerance": "tolerance = 0.03; learning_rate_decay = 'linear'; max_rounds = 20",
    "gfedntm/decay": "learning_rate_decay = 'linear'",
    "gfedntm/two clients": "clients_per_round = 2",
    "gfedntm/two clients server": "clients_per_round = 2; norm = 'server'",
    "gfedntm/fixed": "batch_split = 'fixed'; batch_size = 40",
    "gfedntm/float64": "precision = 'float64'",
    "gfedntm/relevance": "relevance = 0.4",
    "gfedntm/coherence documents": "coherence = 'documents'",
    "gfedntm/coherence nothing": "coherence = 'nothing'",
    "gfedntm/network's own": "hidden = [24, 40]; dropout_theta = 0.1; alpha = 0.3; "
    "learn_prior = true; word_bias = false; encoder_input = 'shares'; posterior_gain = 1.5",
    "gfedntm/nmf": "initialisation = 'nmf'",
    "nmf/default": "",
    "nmf/binary": "term_weight = 'binary'; rarity = 1.0; tolerance = 0.001",
    "nmf/two clients": "clients_per_round = 2",
    "auto/default": "",
    "lda/stochastic": "",
    "lda/batch": "learning = 'batch'",
    "lda/random": "initialisation = 'random'",
    "lda/two clients": "clients_per_round = 2",
    "lda/tolerance": "tolerance = 0.005; learning = 'batch'; max_rounds = 30",
    "lda/fixed": "batch_split = 'fixed'; batch_size = 50",
    "lda/priors": "alpha = 0.2; eta = 0.05; inner_steps = 7; learning_offset = 3.0",
    "lda/coherence documents": "coherence = 'documents'",
    "flda/default": "",
    "flda/paper": "preset = 'paper-transitive'; threshold = 0.5",
    "flda/paper one round": (
        "preset = 'paper-transitive'; threshold = 0.5; max_rounds = 1; iterations = 200"
    ),
    "flda/stop coherence": "stop = 'coherence'; strength = 0.0; memory = 0.0",
    "flda/seed topics": "seed_topics = [['w001', 'w002'], ['w031', 'w032']]",
    "flda/single": "linkage = 'single'; absent_words = 'ignored'; weighting = 'documents'",
    "flda/slices": "documents_per_round = 60; refill = false",
    "flda/of several": "keep_unmatched = false; threshold = 0.3; iterations = 200",
    "flda/two clients": "clients_per_round = 2",
    "gfedntm/from a mixture": "network = 'zeroshottm'; initialisation = 'mixture'",
    "gfedntm/combinedtm from a mixture": "network = 'combinedtm'; initialisation = 'mixture'",
    "mixture/default": "",
    "mixture/two clients": "clients_per_round = 2",
    "mixture/evidence": "kappa = 8.0; word_weight = 0.5; smoothing = 0.5; tolerance = 0.0",
    "kmeans/default": "",
    "kmeans/two clients": "clients_per_round = 2",
    "kmeans/k-fed": "algorithm = 'k-fed'",
    "kmeans/fbow": "preset = 'fbow'",
    "kmeans/ftfidf": "preset = 'ftfidf'",
    "kmeans/fsbert": "preset = 'fsbert'",
    "discriminative/default": "",
    "discriminative/candidates": "candidates = [3, 6, 9]",
    "discriminative/free": "sizes = 'free'",
    "discriminative/two clients": "clients_per_round = 2",
    "fstc/default": "",
    "fstc/paper": "preset = 'paper'",
    "fstc/rstc": "preset = 'rstc'",
    "fstc/stc": "preset = 'stc'",
    "fstc/average every": "average_every = 1",
    "fstc/kmeans": "start = 'kmeans'",
    "fstc/global": "masses = 'global'",
    "fstc/own": "masses = 'own'",
    "fstc/mixture": "mixture_from = 0.5",
    "fstc/two clients": "clients_per_round = 2",
    "fsccl/default": "",
    "fsccl/dropout": "dropout = 0.3; contrastive_weight = 2.0",
}


def write_documents(place: Path) -> None:
    """Write each client's documents, of themes of which each has its own share; some are empty."""
    rng = np.random.default_rng(20240501)
    words = np.array([f"w{number:03}" for number in range(THEMES * 20)])
    centres = rng.normal(size=(THEMES, DIMENSION))
    for name, size in CLIENTS.items():
        shares = rng.dirichlet(np.full(THEMES, 2.0))
        rows = []
        for number in range(size):
            theme = rng.choice(THEMES, p=shares)
            own = rng.choice(words[20 * theme :][:20], rng.integers(6, 14))
            text = " ".join([*own, *rng.choice(words, 3)]) if number % 60 != 59 else ""
            vector = (centres[theme] + rng.normal(0, 0.7, DIMENSION)).astype(np.float32)
            round_ = 1 + number * ROUNDS // size
            rows.append({"text": text, "embedding": vector, "round": round_})
        schema = pa.schema(
            {"text": pa.string(), "embedding": pa.list_(pa.float32()), "round": "i8"}
        )
        pq.write_table(pa.Table.from_pylist(rows, schema), place / f"{name}.parquet")


def documents(place: Path, rounds: tuple[int, ...] = (1, 2, 3)) -> dict[str, Corpus]:
    """Return the clients' documents of these rounds, which nothing says of them any more."""
    columns = Columns(text="text", embedding="embedding")
    tables = {name: pq.read_table(place / f"{name}.parquet") for name in CLIENTS}
    return {
        name: Corpus.of(table.filter(pc.field("round").isin(rounds)), columns)
        for name, table in tables.items()
    }


def study_file(place: Path, folder: Path, case: str, further: str = "") -> Path:
    """Write a case's study, for this process and for the command line."""
    name = case.split("/")[0]
    method = {"name": name}
    for settings in (BASES[name], STUDIES[case], further):
        method |= tomllib.loads(settings.replace("; ", "\n"))
    lines = ["checkpoint_every = 2", "secure = false", "[method]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in method.items()]
    if name not in ("lda", "flda", "nmf"):
        lines.append(f"embedding.dimension = {DIMENSION}")
    # Who is late is waited for: a round without a client gives other bits.
    least = method.get("clients_per_round", len(CLIENTS))
    lines += ["[federation]", f"min_clients = {least}", "gather = 60", "wait = 60"]
    lines.append('robust = "none"  # sums, as in one process')
    columns = 'text = "text"\nembedding = "embedding"'
    if "documents_per_round" not in method:
        columns += '\nround = "round"'
    for client in CLIENTS:
        lines += [f"[clients.{client}]", f'data = "{place / client}.parquet"', columns]
    path = folder / "study.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
