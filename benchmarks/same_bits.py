"""Whether models are the same, bit for bit, before and after a change that is to change none.

Trains a small study for each method, network, norm and start on documents drawn from a seed, and
writes the SHA-256 of each model: of its numbers, words and info, and of the topics that it finds in
documents. It imports names of ``fedtopics.__all__`` alone and calls the command line, so that it
runs on any layout of modules. Compare digests of one computer only: another processor or version of
torch may round otherwise. That engines give these bits as well is ``tests/federation``'s to show.

The first run keeps the digests in build/same_bits.json; later ones are compared with these.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import fedtopics
from benchmarks.common import ROOT, arguments
from fedtopics import Columns, Corpus, Policy, Study, TopicModel, train

Cases = dict[str, Callable[[Path], TopicModel]]  # each has an empty folder of its own

FIRST = (
    "lda/stochastic",
    "flda/default",
    "mixture/default",
    "kmeans/default",
    "discriminative/default",
)
LAST = ("fstc/default", "fsccl/default")
SYNC = "gfedntm/prodlda sync"
AVERAGING = "gfedntm/fedavg"
NORMS = (SYNC, "gfedntm/prodlda server", "gfedntm/prodlda local")
EACH = (*NORMS, AVERAGING, "gfedntm/combinedtm sync", *FIRST, *LAST)  # a case for each method
RESUMED = (SYNC, "gfedntm/fedadam", *FIRST, *LAST)
STARTED = (SYNC, "gfedntm/combinedtm server", AVERAGING, *FIRST[:3])
QUICK = (*EACH, f"resumed/{FIRST[0]}", f"start keep/{FIRST[0]}")
CLIENTS = {"east": 240, "north": 210, "west": 180}  # documents
DIMENSION = 16
THEMES = 6
ROUNDS = 3
BASES = {  # TOML, as all below, with ; for a new line
    "gfedntm": "n_components = 6; max_rounds = 12",
    "lda": 'n_components = 6; max_rounds = 12; batch_size = 128; learning = "stochastic"',
    "nmf": "n_components = 6; max_rounds = 10",
    "flda": "n_components = 6; max_rounds = 3; iterations = 60; min_new_documents = 20",
    "mixture": "n_components = 6; max_rounds = 20",
    "kmeans": "n_components = 6; max_rounds = 20",
    "discriminative": "n_components = 6; max_rounds = 20",
    "fstc": "n_components = 6; max_rounds = 4; network.local_steps = 8; network.batch_size = 60",
    "fsccl": "n_components = 6; max_rounds = 4; network.local_steps = 8; network.batch_size = 60; "
    "network.deletion = 0",
}
AVERAGED = "norm = 'server'; local_steps = 3; optimizer"
MIXED = "initialisation = 'mixture'"
NO_DEFAULT = ("gfedntm", "lda")
NONE_DRAWN = ("fsccl",)
STUDIES = {
    **{
        f"gfedntm/{network} {norm}": f"network = '{network}'; norm = '{norm}'"
        for network in ("prodlda", "neurallda", "combinedtm", "zeroshottm")
        for norm in ("sync", "server", "local")
    },
    **{f"{name}/default": "" for name in BASES if name not in NO_DEFAULT},
    **{f"{n}/two clients": "clients_per_round = 2" for n in BASES if n not in NONE_DRAWN},
    **{f"kmeans/{preset}": f"preset = '{preset}'" for preset in ("fbow", "ftfidf", "fsbert")},
    **{f"fstc/{preset}": f"preset = '{preset}'" for preset in ("frozen", "rstc", "stc")},
    "gfedntm/preset paper": "preset = 'paper'",
    "gfedntm/preset mixtures": "preset = 'mixtures'; network = 'neurallda'",
    "gfedntm/sgd": "optimizer = 'sgd'; learning_rate = 0.02",
    "gfedntm/fedavg": f"{AVERAGED} = 'fedavg'",
    "gfedntm/fedadam": f"{AVERAGED} = 'fedadam'",
    "gfedntm/fedavg local": "norm = 'local'; local_steps = 3; optimizer = 'fedavg'",
    "gfedntm/fedavg combinedtm": f"{AVERAGED} = 'fedavg'; network = 'combinedtm'",
    "gfedntm/anchors": "initialisation = 'anchors'",
    "gfedntm/nmf": "initialisation = 'nmf'",
    "gfedntm/validation": "validation_share = 0.25; validate_every = 2; patience = 1; "
    "optimizer = 'sgd'; learning_rate = 1.0; max_rounds = 20",
    "gfedntm/tolerance": "tolerance = 0.03; learning_rate_decay = 'linear'; max_rounds = 20",
    "gfedntm/decay": "learning_rate_decay = 'linear'",
    "gfedntm/two clients server": "clients_per_round = 2; norm = 'server'",
    "gfedntm/fixed": "batch_split = 'fixed'; batch_size = 40",
    "gfedntm/float64": "precision = 'float64'",
    "gfedntm/relevance": "relevance = 0.4",
    **{f"gfedntm/coherence {of}": f"coherence = '{of}'" for of in ("documents", "nothing")},
    "gfedntm/network's own": "hidden = [24, 40]; dropout_theta = 0.1; alpha = 0.3; "
    "learn_prior = true; word_bias = false; encoder_input = 'shares'; posterior_gain = 1.5",
    "gfedntm/from a mixture": f"network = 'zeroshottm'; {MIXED}",
    "gfedntm/combinedtm from a mixture": f"network = 'combinedtm'; {MIXED}",
    "nmf/binary": "term_weight = 'binary'; rarity = 1.0; tolerance = 0.001",
    "lda/stochastic": "",
    "lda/batch": "learning = 'batch'",
    "lda/random": "initialisation = 'random'",
    "lda/tolerance": "tolerance = 0.005; learning = 'batch'; max_rounds = 30",
    "lda/fixed": "batch_split = 'fixed'; batch_size = 50",
    "lda/priors": "alpha = 0.2; eta = 0.05; inner_steps = 7; learning_offset = 3.0",
    "lda/coherence documents": "coherence = 'documents'",
    "flda/paper": "preset = 'paper-transitive'; threshold = 0.5",
    "flda/paper one round": "preset = 'paper-transitive'; threshold = 0.5; "
    "max_rounds = 1; iterations = 200",
    "flda/stop coherence": "stop = 'coherence'; strength = 0.0; memory = 0.0",
    "flda/seed topics": "seed_topics = [['w001', 'w002'], ['w031', 'w032']]",
    "flda/single": "linkage = 'single'; absent_words = 'ignored'; weighting = 'documents'",
    "flda/slices": "documents_per_round = 60; refill = false",
    "flda/of several": "keep_unmatched = false; threshold = 0.3; iterations = 200",
    "mixture/evidence": "kappa = 8.0; word_weight = 0.5; smoothing = 0.5; tolerance = 0.0",
    "kmeans/k-fed": "algorithm = 'k-fed'",
    "discriminative/free": "separation.sizes = 'free'",
    "discriminative/candidates": "candidates = [3, 6, 9]",
    "fstc/average every": "average_every = 1",
    "fstc/kmeans": "first_labels = 'kmeans'",
    "fstc/mixture": "mixture_from = 0.5",
    **{f"fstc/{masses}": f"masses = '{masses}'" for masses in ("global", "own")},
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
            theme_words = rng.choice(words[20 * theme :][:20], rng.integers(6, 14))
            text = " ".join([*theme_words, *rng.choice(words, 3)]) if number % 60 != 59 else ""
            vector = (centres[theme] + rng.normal(0, 0.7, DIMENSION)).astype(np.float32)
            round_ = 1 + number * ROUNDS // size
            rows.append({"text": text, "embedding": vector, "round": round_})
        types = {"text": pa.string(), "embedding": pa.list_(pa.float32()), "round": "i8"}
        file = pa.Table.from_pylist(rows, pa.schema(types))
        pq.write_table(file, place / f"{name}.parquet")


def documents(place: Path, rounds: tuple[int, ...] = (1, 2, 3)) -> dict[str, Corpus]:
    """Return the clients' documents of these rounds, which nothing says of them any more."""
    wanted = [("round", "in", rounds)]
    tables = {n: pq.read_table(place / f"{n}.parquet", filters=wanted) for n in CLIENTS}
    columns = Columns(text="text", embedding="embedding")
    return {name: Corpus.of(table, columns) for name, table in tables.items()}


def study_file(place: Path, folder: Path, case: str) -> Path:
    """Write a case's study, for this process and for the command line."""
    name = case.split("/")[0]
    method = {"name": f"'{name}'"}
    for settings in filter(None, (BASES[name], STUDIES[case])):
        method |= dict(setting.split(" = ", 1) for setting in settings.split("; "))
    lines = ["checkpoint_every = 2", 'aggregation = "plain"', "[method]"]
    lines += [f"{key} = {value}" for key, value in method.items()]
    if name not in ("lda", "flda", "nmf"):
        lines.append(f"embedding.dimension = {DIMENSION}")
    least = method.get("clients_per_round", len(CLIENTS))
    lines += ["[federation]", f"quorum = {least}", 'outliers = "none"']
    lines += ["join_timeout = 60", "quorum_timeout = 60"]
    columns = 'text = "text"\nembedding = "embedding"'
    if "documents_per_round" not in method:
        columns += '\nround = "round"'
    for client in CLIENTS:
        lines += [f"[clients.{client}]", f'data = "{place / client}.parquet"', columns]
    path = folder / "study.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def local(place: Path, case: str, folder: Path) -> TopicModel:
    return train(Study.read(study_file(place, folder, case)))


def resumed(place: Path, case: str, folder: Path) -> TopicModel:
    study = Study.read(study_file(place, folder, case))

    def break_off(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 3:
            raise InterruptedError

    try:
        train(study, out=folder / "run", on_event=break_off)
    except InterruptedError:
        return train(study, out=folder / "run", resume=True)
    raise RuntimeError("the run had no third round to break off in")


def started(place: Path, case: str, first: str, how: str, folder: Path) -> TopicModel:
    """Train a case's study from the model of another on the first documents."""
    model = train(Study.read(study_file(place, folder, first)), documents(place, (1,)))
    study = Study.read(study_file(place, folder, case))
    if case != first:  # F-LDA finds a number of topics that depends on the processor's rounding
        method = study.method.model_copy(update={"n_components": model.n_topics})
        study = study.model_copy(update={"method": method})
    if how == "pair":
        return train(study, start=(model.beta, model.vocabulary.words))
    return train(study, start=model, vocabulary="keep" if how == "keep" else "agree")


def command_line(place: Path, case: str, folder: Path) -> TopicModel:
    """Train by `fedtopics train`, then further with --from."""
    study = study_file(place, folder, case)
    first = ["train", study, "--out", folder / "first"]
    then = ["train", study, "--from", folder / "first/model", "--out", folder / "then"]
    for order in (first, then):
        command = [sys.executable, "-m", "fedtopics", *map(str, order)]
        subprocess.run(command, check=True, capture_output=True)
    return TopicModel.from_pretrained(folder / "then" / "model")


def estimators(place: Path) -> Iterator[tuple[str, Callable[[Path], TopicModel]]]:
    seeds = [["w001", "w002"], ["w031", "w032"]]
    briefly: dict[str, Any] = {"max_rounds": 8}
    sees = briefly | {"embedding_dimension": DIMENSION}
    settings = {
        "ProdLDA": briefly,
        "NeuralLDA": briefly,
        "CombinedTM": sees,
        "ZeroShotTM": sees,
        "LDA": briefly,
        "FLDA": {"max_rounds": 2, "min_new_documents": 20},
        "GuidedLDA": {"seed_topics": seeds},
        "MixtureTM": sees,
        "ShortTextClustering": sees,
    }

    def made(name: str) -> Any:
        return getattr(fedtopics, name)(**settings[name])

    def fit(name: str, _: Path) -> Any:
        return made(name).fit(documents(place)["east"]).model_

    def fit_clients(name: str, _: Path) -> Any:
        policies = dict.fromkeys(CLIENTS, Policy(min_persons=5, min_persons_per_word=6))
        return made(name).fit_clients(documents(place), policies=policies).model_

    def partial_fit(name: str, _: Path) -> Any:
        begun = made(name).partial_fit_clients(documents(place, (1,)))
        return begun.partial_fit_clients(documents(place, (2, 3))).model_

    for name in settings:
        yield f"{name}/fit", partial(fit, name)
        yield f"{name}/fit_clients", partial(fit_clients, name)
    for name in ("LDA", "FLDA", "MixtureTM"):
        yield f"{name}/partial_fit_clients", partial(partial_fit, name)


def all_cases(place: Path) -> Cases:
    cases: Cases = {case: partial(local, place, case) for case in STUDIES}
    cases |= {f"resumed/{case}": partial(resumed, place, case) for case in RESUMED}
    for case in STARTED:
        for how in ("keep", "agree", "pair"):
            cases[f"start {how}/{case}"] = partial(started, place, case, case, how)
    lda, flda = FIRST[:2]
    for case, first in ((SYNC, lda), (lda, SYNC), (flda, lda), (lda, flda)):
        cases[f"start of {first}/{case}"] = partial(started, place, case, first, "agree")
    cases |= dict(estimators(place))
    cases |= {f"run, continue/{case}": partial(command_line, place, case) for case in (SYNC, lda)}
    return cases


def flat(value: Any, name: str) -> Iterator[bytes]:
    """Yield names, dtypes, shapes and bytes of what is in a value, in sorted order."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from flat(value[key], f"{name}/{key}")
    elif isinstance(value, (np.ndarray, torch.Tensor)):
        array = np.ascontiguousarray(torch.as_tensor(value).detach().numpy())
        yield f"{name} {array.dtype} {array.shape}\n".encode()
        yield array.tobytes()
    else:
        yield f"{name} {json.dumps(value)}\n".encode()


def digest(model: TopicModel, corpus: Corpus) -> str:
    """Digest what is public of a model, and the topics that it finds in documents."""
    names = ("weights", "shared", "beta", "shares", "documents", "word_sums", "coherence")
    parts = {name: getattr(model, name) for name in names}
    words = model.vocabulary
    parts |= {"words": list(words.words), "frequency": words.document_frequency}
    parts |= {"occurrences": words.occurrences, "info": model.info}
    parts |= {"topics": model.topics(), "theta": model.transform(corpus)}
    hasher = hashlib.sha256()
    for piece in flat(parts, ""):
        hasher.update(piece)
    return hasher.hexdigest()


def measure(case: Callable[[Path], TopicModel], corpus: Corpus) -> str:
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = case(Path(folder)).save_pretrained(Path(folder) / "saved")
            return digest(TopicModel.from_pretrained(model), corpus)
        except Exception as error:
            print(f"    {error}")
            return f"error: {type(error).__name__}"


def compare(now: Mapping[str, str], earlier: Mapping[str, str], complete: bool) -> int:
    """Print which digests differ; return how many. A case that failed is not the same."""
    names = sorted(now.keys() | earlier.keys() if complete else now.keys())
    both = {name: (earlier.get(name, "missing"), now.get(name, "missing")) for name in names}
    differ = {n: (a, b) for n, (a, b) in both.items() if a != b or b.startswith("error")}
    for name, (before, after) in differ.items():
        print(f"differs: {name}: {before[:24]} -> {after[:24]}")
    print(f"{len(names) - len(differ)} of {len(names)} are the same")
    return len(differ)


def main() -> int:
    """Train the cases that are asked for; compare them with those of before, if there are any."""
    given = arguments(__doc__, only="", compare=None, out=None)
    before = given.compare or ROOT / "build/same_bits.json"
    quick = given.quick and not given.compare
    earlier = json.loads(before.read_text()) if before.exists() and not quick else None
    out = given.out or (before if earlier is None else ROOT / "build/same_bits_after.json")
    print(f"fedtopics of {Path(str(fedtopics.__file__)).parent}")
    digests: dict[str, str] = {}
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_documents(place)
        corpus = documents(place)["east"]
        for name, case in all_cases(place).items():
            if given.only in name and (name in QUICK or not given.quick):
                start = time.perf_counter()
                digests[name] = measure(case, corpus)
                print(
                    f"{digests[name][:24]:24}  {time.perf_counter() - start:5.1f} s  {name}",
                    flush=True,
                )
    print(f"{len(digests)} cases, {time.perf_counter() - begun:.0f} s")
    errors = sum(digest.startswith("error") for digest in digests.values())
    complete = not given.only and not given.quick
    if complete or given.out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    return errors if earlier is None else int(compare(digests, earlier, complete) > 0)
