"""Whether models are the same, bit for bit, before and after a change that is to change none.

Trains a small study for each method, network, norm, start and engine on documents drawn from a
seed, and writes the SHA-256 of each model: of its numbers, words and info, and of the topics that
it finds in documents. It imports names of ``fedtopics.__all__`` alone and calls the command line,
so that it runs on any layout of modules. Compare digests of one computer only: another processor
or version of torch may round otherwise.

The first run keeps the digests in build/same_bits.json; later ones, after a change of the code, are
compared with these. Delete the file to begin anew.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedtopics
from benchmarks.common import ROOT, arguments
from benchmarks.same_bits_studies import (
    CLIENTS,
    DIMENSION,
    STUDIES,
    documents,
    study_file,
    write_documents,
)
from fedtopics import (
    FLDA,
    LDA,
    CombinedTM,
    Corpus,
    GuidedLDA,
    MixtureTM,
    NeuralLDA,
    Policy,
    ProdLDA,
    ShortTextClustering,
    Study,
    TopicModel,
    ZeroShotTM,
    train,
)

Cases = dict[str, Callable[[Path], TopicModel]]  # each has an empty folder of its own

PATIENCE = 120  # seconds for a federation
FIRST = (
    "lda/stochastic", "flda/default", "mixture/default", "kmeans/default", "discriminative/default",
)  # fmt: skip
LAST = ("fstc/default", "fsccl/default")
SYNC, AVERAGED = "gfedntm/prodlda sync", "gfedntm/fedavg"
NORMS = (SYNC, "gfedntm/prodlda server", "gfedntm/prodlda local")
EACH = (*NORMS, AVERAGED, "gfedntm/combinedtm sync", *FIRST, *LAST)  # a case for each method
OVER_GRPC = (*EACH, "gfedntm/anchors")
RESUMED = (SYNC, "gfedntm/fedadam", *FIRST, *LAST)
STARTED = (SYNC, "gfedntm/combinedtm server", AVERAGED, *FIRST[:3])
QUICK = (*EACH, f"grpc/{SYNC}", f"resumed/{FIRST[0]}", f"start keep/{FIRST[0]}")


def local(place: Path, case: str, folder: Path) -> TopicModel:
    return train(Study.read(study_file(place, folder, case)))


def resumed(place: Path, case: str, folder: Path) -> TopicModel:
    """Train, break off in the third round, go on."""
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
    if how == "pair":
        return train(study, start=(model.beta, model.vocabulary.words))
    return train(study, start=model, vocabulary="keep" if how == "keep" else "agree")


def fedtopics_command(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Begin a command; what it says goes nowhere unless asked for."""
    command = [sys.executable, "-m", "fedtopics", *map(str, arguments)]
    given = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "text": True} | options
    return subprocess.Popen(command, **given)


def command_line(place: Path, case: str, folder: Path) -> TopicModel:
    """Train by `fedtopics run`, then further by `fedtopics continue`."""
    study = study_file(place, folder, case)
    first = ["run", study, "--out", folder / "first"]
    then = ["continue", folder / "first/model", "--study", study, "--out", folder / "then"]
    for order in (first, then):
        if fedtopics_command(*order).wait(PATIENCE):
            raise RuntimeError(f"fedtopics {order[0]} failed")
    return TopicModel.from_pretrained(folder / "then" / "model")


def grpc(place: Path, case: str, folder: Path, start: str | None = None) -> TopicModel:
    """Train with a server and three clients, each a process."""
    study, log = study_file(place, folder, case), folder / "server.log"
    given: list[object] = ["--insecure", "--listen", "127.0.0.1:0", "--out", folder / "server"]
    if start is not None:
        local(place, start, folder).save_pretrained(folder / "first")
        study = study_file(place, folder, case)
        given += ["--start", folder / "first"]
    with log.open("w", encoding="utf-8") as said:
        processes = [fedtopics_command("server", study, *given, "--json", stdout=said)]
        try:
            join = ["--insecure", "--server", address(log), "--text", "text"]
            policy = folder / "policy.toml"
            policy.write_text("min_documents = 10\n", encoding="utf-8")  # as in one process
            join += ["--embedding", "embedding", "--round", "round", "--policy", str(policy)]
            for name in CLIENTS:
                own = ["--name", name, "--data", place / f"{name}.parquet", "--out", folder / name]
                processes.append(fedtopics_command("client", *join, *own))
            if any(process.wait(PATIENCE) for process in processes):
                raise RuntimeError("a server or client failed")
        finally:
            for process in processes:
                process.kill()
                process.wait()
    models = [TopicModel.from_pretrained(folder / who / "model") for who in ("server", *CLIENTS)]
    if len({digest(model, documents(place)["east"]) for model in models}) > 1:
        raise RuntimeError("server and clients have different models")
    return models[0]


def address(log: Path) -> str:
    """Wait until a server says where it listens."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := re.search(r'"address": "127\.0\.0\.1:(\d+)"', log.read_text(encoding="utf-8")):
            return f"127.0.0.1:{found[1]}"
        time.sleep(0.05)
    raise TimeoutError("the server does not listen")


def estimators(place: Path) -> Iterator[tuple[str, Callable[[Path], TopicModel]]]:
    """Yield a case for each estimator and way to fit it."""
    seeds = [["w001", "w002"], ["w031", "w032"]]
    sees: dict[str, Any] = {"embedding_dimension": DIMENSION, "max_rounds": 8}
    made: dict[str, Callable[[], Any]] = {
        "ProdLDA": partial(ProdLDA, max_rounds=8),
        "NeuralLDA": partial(NeuralLDA, max_rounds=8),
        "CombinedTM": partial(CombinedTM, **sees),
        "ZeroShotTM": partial(ZeroShotTM, **sees),
        "LDA": partial(LDA, max_rounds=8),
        "FLDA": partial(FLDA, max_rounds=2, min_new_documents=20),
        "GuidedLDA": partial(GuidedLDA, seeds),
        "MixtureTM": partial(MixtureTM, **sees),
        "ShortTextClustering": partial(ShortTextClustering, **sees),
    }

    def fit(name: str, _: Path) -> TopicModel:
        found: TopicModel = made[name]().fit(documents(place)["east"]).model_
        return found

    def fit_clients(name: str, _: Path) -> TopicModel:
        policies = dict.fromkeys(CLIENTS, Policy(min_documents=5, min_document_frequency=6))
        found: TopicModel = made[name]().fit_clients(documents(place), policies=policies).model_
        return found

    def partial_fit(name: str, _: Path) -> TopicModel:
        begun = made[name]().partial_fit_clients(documents(place, (1,)))
        found: TopicModel = begun.partial_fit_clients(documents(place, (2, 3))).model_
        return found

    for name in made:
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
    cases |= {f"grpc/{case}": partial(grpc, place, case) for case in OVER_GRPC}
    cases["grpc, start keep/lda/stochastic"] = partial(grpc, place, lda, start=lda)
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
    found = hashlib.sha256()
    for piece in flat(parts, ""):
        found.update(piece)
    return found.hexdigest()


def measure(case: Callable[[Path], TopicModel], corpus: Corpus) -> str:
    """Train a case; return the digest of the model after it was written and read, or an error."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = case(Path(folder)).save_pretrained(Path(folder) / "saved")
            return digest(TopicModel.from_pretrained(model), corpus)
        except Exception as error:
            print(f"    {error}")
            return f"error: {type(error).__name__}"


def compare(found: Mapping[str, str], known: Mapping[str, str], complete: bool) -> int:
    """Print which digests differ; return how many. A case that failed is not the same."""
    names = found.keys() | known.keys() if complete else found.keys()
    differ = 0
    for name in sorted(names):
        before, after = known.get(name, "missing"), found.get(name, "missing")
        if before != after or after.startswith("error"):
            differ += 1
            print(f"differs: {name}: {before[:24]} -> {after[:24]}")
    print(f"{len(names) - differ} of {len(names)} are the same")
    return differ


def main() -> int:
    """Train the cases that are asked for; compare them with those of before, if there are any."""
    given = arguments(__doc__, only="", compare=None, out=None)
    before = given.compare or ROOT / "build/same_bits.json"
    quick = given.quick and not given.compare
    known = json.loads(before.read_text()) if before.exists() and not quick else None
    out = given.out or (before if known is None else ROOT / "build/same_bits_after.json")
    print(f"fedtopics of {Path(str(fedtopics.__file__)).parent}")
    found: dict[str, str] = {}
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_documents(place)
        corpus = documents(place)["east"]
        for name, case in all_cases(place).items():
            if given.only in name and (name in QUICK or not given.quick):
                start = time.perf_counter()
                found[name] = measure(case, corpus)
                seconds = time.perf_counter() - start
                print(f"{found[name][:24]:24}  {seconds:5.1f} s  {name}", flush=True)
    print(f"{len(found)} cases, {time.perf_counter() - begun:.0f} s")
    errors = sum(digest.startswith("error") for digest in found.values())
    complete = not given.only and not given.quick
    if complete or given.out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return errors if known is None else int(compare(found, known, complete) > 0)
