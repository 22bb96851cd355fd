"""What messages tell people to do can be done, and helps: each is provoked, then followed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedtopics import FLDA, LDA, NMF, Corpus, GuidedLDA, Policy, ShortTextClustering, Study, train
from fedtopics.errors import FedTopicsError
from fedtopics.methods.flda.merged_models import merge_models
from tests.helpers.command_line import Typed
from tests.helpers.models import made

TREES = ["oak and beech and fir grow here", "fir and beech and oak"] * 20
BOATS = ["ketch and sloop and yawl sail", "a yawl and a sloop and a ketch"] * 20
ALL = TREES + BOATS
CLIENTS = {"north": ALL, "south": ALL}
TWO = pd.DataFrame({"title": ["one", "two"] * 40, "letter": ALL, "client": ["a", "b"] * 40})
NUMBERS = ["12 345 67", "11 99 89"] * 20
STOP = ["the and of", "with for but"] * 20
OF_ONE = {"min_clients_per_word": 1}
DIGITS = {"token_pattern": "words-and-digits", "stop_words": None}
RARE = [[f"word{number}", f"word{number + 1}"] for number in range(12)]
PLAIN: dict[str, Any] = {"name": "nmf", "n_components": 2, "max_rounds": 2}
CORPUS = Corpus.of(ALL)
EMBEDDED = CORPUS.with_embeddings(np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32))
VECTORS = TWO.assign(embedding=[*np.random.default_rng(0).normal(size=(80, 3))])
CALL = "rename that column to text, or give its name"
OPEN = Policy(min_persons=1, min_persons_per_word=1)
MORE = dict.fromkeys(CLIENTS, ALL * 2)
GROWN: dict[str, Any] = {"max_rounds": 1, "iterations": 20, "min_new_documents": 1}
FEW = {"a": RARE, "b": RARE}


def study(**tables: Any) -> Study:
    return Study.make(**{"method": PLAIN, **tables})


def policies(**rules: Any) -> dict[str, Policy]:
    return dict.fromkeys(CLIENTS, Policy(**rules))


Call = Callable[[], Any]
IN_PYTHON: dict[str, tuple[Call, str, Call]] = {  # what fails, what the message says, what helps
    "a column for fit": (
        lambda: NMF(2).fit(TWO[["title", "letter"]]),
        CALL,
        lambda: NMF(2).fit(TWO[["title", "letter"]], text="letter"),
    ),
    "a column for fit_clients": (
        lambda: NMF(2).fit_clients(TWO, client="client"),
        CALL,
        lambda: NMF(2).fit_clients(TWO, client="client", text="letter"),
    ),
    "a column for clients' tables": (
        lambda: NMF(2).fit_clients({"a": TWO, "b": TWO}),
        CALL,
        lambda: NMF(2).fit_clients({"a": TWO, "b": TWO}, text="letter"),
    ),
    "a column for transform": (
        lambda: NMF(2).fit(ALL).transform(TWO),
        CALL,
        lambda: NMF(2).fit(ALL).transform(TWO, text="letter"),
    ),
    "a column for partial_fit": (
        lambda: LDA(2, max_rounds=2).partial_fit(TWO),
        CALL,
        lambda: LDA(2, max_rounds=2).partial_fit(TWO, text="letter"),
    ),
    "a column for clusters": (
        lambda: ShortTextClustering(2).fit(TWO),
        CALL,
        lambda: ShortTextClustering(2, embedding_dimension=3).fit(VECTORS, text="letter"),
    ),
    "no table": (lambda: NMF(2).fit(ALL, text="letter"), "leave text out", lambda: NMF(2).fit(ALL)),
    "the column of clients": (
        lambda: NMF(2).fit_clients(TWO.rename(columns={"client": "who"}), text="letter"),
        "name it with client=",
        lambda: NMF(2).fit_clients(
            TWO.rename(columns={"client": "who"}), text="letter", client="who"
        ),
    ),
    "numbers alone": (
        lambda: NMF(2).fit(NUMBERS),
        'token_pattern = "words-and-digits"',
        lambda: NMF(2, **DIGITS).fit(NUMBERS),
    ),
    "stop words alone": (
        lambda: NMF(2).fit(STOP),
        'stop_words = "none"',
        lambda: NMF(2, **DIGITS).fit(STOP),
    ),
    "numbers alone, of clients": (
        lambda: NMF(2).fit_clients({"a": NUMBERS, "b": STOP}),
        'stop_words = "none"',
        lambda: NMF(2, **DIGITS, **OF_ONE).fit_clients({"a": NUMBERS, "b": STOP}),
    ),
    "rare words of a study": (
        lambda: NMF(2).fit(RARE),
        "lower min_persons_per_word of the study.",
        lambda: NMF(2, min_persons_per_word=2).fit(RARE),
    ),
    "rare words of a policy": (
        lambda: NMF(2, min_persons_per_word=1).fit_clients(FEW),
        "lower min_persons_per_word of the client's policy.",
        lambda: NMF(2, min_persons_per_word=1).fit_clients(FEW, policies={"a": OPEN, "b": OPEN}),
    ),
    "rare words of both": (
        lambda: NMF(2).fit_clients(FEW),
        "of the study and of the client's policy.",
        lambda: NMF(2, min_persons_per_word=2).fit_clients(FEW, policies={"a": OPEN, "b": OPEN}),
    ),
    "one word": (
        lambda: NMF(2).fit(["oak"] * 20),
        "fewer than 2; give more documents",
        lambda: NMF(2, max_document_share=1.0).fit([*ALL, *["oak"] * 20]),
    ),
    "more topics than words": (
        lambda: NMF(20).fit(ALL),
        "lower n_components",
        lambda: NMF(4).fit(ALL),
    ),
    "few words of a policy": (
        lambda: NMF(2).fit_clients({"a": TREES, "b": BOATS}),
        "set min_clients_per_word = 1",
        lambda: NMF(2, **OF_ONE).fit_clients({"a": TREES, "b": BOATS}),
    ),
    "words in most documents": (
        lambda: NMF(2).fit(TREES),
        "raise max_document_share",
        lambda: NMF(2, max_document_share=1.0).fit(TREES),
    ),
    "more documents": (
        lambda: train(study(), CLIENTS, policies=policies(min_persons=99)),
        "give it documents of more persons",
        lambda: train(study(), MORE, policies=policies(min_persons=99)),
    ),
    "rounds of a policy": (
        lambda: train(study(), CLIENTS, policies=policies(max_rounds=1)),
        "lower the study's max_rounds",
        lambda: train(
            study(method=PLAIN | {"max_rounds": 1}), CLIENTS, policies=policies(max_rounds=1)
        ),
    ),
    "methods of a policy": (
        lambda: train(study(), CLIENTS, policies=policies(methods=["lda"])),
        "choose one that it allows: lda",
        lambda: train(
            study(method={"name": "lda", "n_components": 2}),
            CLIENTS,
            policies=policies(methods=["lda"]),
        ),
    ),
    "fewest clients": (
        lambda: study(federation={"quorum": 3}, clients={"a": {}, "b": {}}),
        "quorum = 3 is more than the 2 clients",
        lambda: study(federation={"quorum": 2}, clients={"a": {}, "b": {}}),
    ),
    "secure aggregation": (
        lambda: study(aggregation="secure", method={"name": "flda"}),
        "leave this out",
        lambda: study(method={"name": "flda"}),
    ),
    "secure aggregation and outliers": (
        lambda: study(aggregation="secure", federation={"outliers": "median"}),
        "change that",
        lambda: study(aggregation="secure", federation={"outliers": "none"}),
    ),
    "n-grams": (
        lambda: study(text={"ngrams": [1, 2]}),
        'set coherence to "documents" or "nothing"',
        lambda: study(text={"ngrams": [1, 2]}, method=PLAIN | {"coherence": "documents"}),
    ),
    "no embeddings, and another dimension": (
        lambda: ShortTextClustering(2).fit(EMBEDDED),
        "dimension",
        lambda: ShortTextClustering(2, embedding_dimension=3).fit(EMBEDDED),
    ),
    "two ways to split texts": (
        lambda: NMF(2, tokenizer=str.split, analyzer=str.split).fit(ALL),
        "give one of them",
        lambda: NMF(2, tokenizer=str.split).fit(ALL),
    ),
    "seeds": (
        lambda: GuidedLDA([["oak"], []]).fit(ALL),
        "at least one word",
        lambda: GuidedLDA([["oak"], ["yawl"]], iterations=20).fit(ALL),
    ),
    "the same seeds": (
        lambda: GuidedLDA([["oak"], ["oak"]]).fit(ALL),
        "change one",
        lambda: GuidedLDA([["oak"], ["yawl"]], iterations=20).fit(ALL),
    ),
    "fewer topics": (
        lambda: made().reduce_topics(9),
        "a whole number, 1 to 3",
        lambda: made().reduce_topics(1),
    ),
    "models of one client": (
        lambda: merge_models([made(), made()]),
        "name each model's client",
        lambda: merge_models([made(), made(shares={"b": np.full(3, 1 / 3)}, documents={"b": 9})]),
    ),
    "a threshold of models": (
        lambda: merge_models([made(), made()], threshold=2),
        "above 0 and at most 1",
        lambda: merge_models(
            [made(), made(shares={"b": np.full(3, 1 / 3)}, documents={"b": 9})], threshold=1
        ),
    ),
    "another topic count to begin with": (
        lambda: (
            LDA(3, max_rounds=2, start=made()).fit(["oak elm", "flu tea"] * 20)
            and LDA(2, max_rounds=2, start=made()).fit(["oak elm", "flu tea"] * 20)
        ),
        "set n_components to the number of topics",
        lambda: LDA(3, max_rounds=2, start=made()).fit(["oak elm", "flu tea"] * 20),
    ),
    "periods": (
        lambda: made().topics_over_time(),
        "give documents and their values",
        lambda: made().topics_over_time(["oak"] * 20, ["2026-01-01"] * 20),
    ),
    "a period": (
        lambda: made().topics_over_time(["oak"] * 20, ["2026-01-01"] * 20, by="moon"),
        "choose from year, quarter",
        lambda: made().topics_over_time(["oak"] * 20, ["2026-01-01"] * 20, by="quarter"),
    ),
    "a time for each document": (
        lambda: made().topics_over_time(["oak"] * 20, ["2026-01-01"]),
        "give one for each document",
        lambda: made().topics_over_time(["oak"] * 20, ["2026-01-01"] * 20),
    ),
    "a readout": (
        lambda: made().transform(["oak"], readout="median"),
        "choose from mean, root",
        lambda: made().transform(["oak"], readout="root"),
    ),
    "words to show": (
        lambda: made().topics(0),
        "a whole number, 1 or more",
        lambda: made().topics(1),
    ),
    "one string": (
        lambda: NMF(2).fit("oak and elm"),
        "give a list of strings",
        lambda: NMF(2).fit(ALL),
    ),
    "counts that are weights": (
        lambda: Corpus.of_counts([[0.5]], ["oak"]),
        "give counts, such as",
        lambda: Corpus.of_counts([[5]], ["oak"]),
    ),
    "a name of a metric": (
        lambda: NMF(2, stop_when={"los": 1.0}).fit(ALL),
        "did you mean 'loss'",
        lambda: NMF(2, stop_when={"loss": 1.0}).fit(ALL),
    ),
    "F-LDA's rounds": (
        lambda: FLDA(2, **GROWN, stopwords=None).fit_clients(CLIENTS),
        "did you mean 'stop_words'",
        lambda: FLDA(2, **GROWN, stop_words=None).fit_clients(CLIENTS),
    ),
}


@pytest.mark.parametrize("case", IN_PYTHON)
@pytest.mark.filterwarnings("ignore")
def test_in_python(case: str) -> None:
    fails, message, helps = IN_PYTHON[case]
    with pytest.raises(FedTopicsError) as error:
        fails()
    assert message in str(error.value)
    assert str(error.value)[-1] in ".?"
    helps()


def test_later_tables_are_read_as_the_first(tmp_path: Path) -> None:
    """`score` and the like take no column: it is the one that the model was fitted by."""
    model = NMF(2).fit(TWO, text="letter")
    expected = NMF(2).fit(ALL)
    np.testing.assert_array_equal(model.transform(TWO), expected.transform(ALL))
    assert model.score(TWO) == expected.score(ALL)
    assert [*model.get_document_info(TWO)["Document"]] == ALL
    assert model.transform(TWO.rename(columns={"letter": "text"})[["text"]]).shape == (80, 2)
    TWO.to_csv(tmp_path / "two.csv", index=False)
    np.testing.assert_array_equal(model.transform(tmp_path / "two.csv"), expected.transform(ALL))
    clients = NMF(2).fit_clients(tmp_path / "two.csv", client="client", text="letter")
    again = NMF(2).fit_clients(TWO, client="client", text="letter")
    assert clients.beta_.tobytes() == again.beta_.tobytes()


STUDY = '[method]\nname = "nmf"\nn_components = 2\nmax_rounds = 2\n[clients.a]\ndata = "a.csv"\n'
B = '[clients.b]\ndata = "a.csv"\n'
# What fails, what the message says, and then what helps.
TYPED: dict[str, tuple[str, str, list[str]]] = {
    "a column": (
        "transform model two.csv -o t.csv",
        CALL,
        ["transform model two.csv -o t.csv --columns text=letter"],
    ),
    "an output": (
        "transform model a.csv -o t.xlsx",
        "has to end in .parquet or .csv or .jsonl",
        ["transform model a.csv -o t.parquet"],
    ),
    "an input": (
        "transform model theta.csv -o theta.csv --columns text=text",
        "name another file",
        ["transform model theta.csv -o new.csv --columns text=text"],
    ),
    "a run there": (
        "train study.toml --out run",
        "or name another folder with --out",
        ["train study.toml --out run --resume", "train study.toml --out another"],
    ),
    "no run there": (
        "train study.toml --out none --resume",
        "leave out --resume",
        ["train study.toml --out none"],
    ),
    "a model there": (
        "models merge model east -o model",
        "name another folder",
        ["models merge model east -o new"],
    ),
    "names of clients": (
        "models merge model model -o new",
        "as in north=MODEL",
        ["models merge east=east west=east -o new"],
    ),
    "thresholds": (
        "models merge model east -o new --threshold .5 --topics 2",
        "exclude each other",
        [
            "models merge model east -o new --threshold .5",
            "models merge model east -o new2 --topics 2",
        ],
    ),
    "rules": (
        "transform model a.csv -o t.csv --text-rules bad.toml",
        "did you mean 'stop_words'",
        ["transform model a.csv -o t.csv --text-rules good.toml"],
    ),
    "documents": (
        "topics model --examples-from a.csv",
        "needs --suggest",
        ["topics model --suggest --examples-from a.csv"],
    ),
    "what to show": (
        "transform model a.csv",
        "add --out, --by or --by-time",
        [
            "transform model two.csv --columns text=letter --by title",
            "transform model a.csv -o t.csv",
        ],
    ),
    "a study": (
        "train",
        "Missing argument 'STUDY'",
        ["init study new.toml", "train study.toml --out yet"],
    ),
    "numbers": (
        "sweep study.toml --topics 1",
        "give numbers of at least 2, separated by commas",
        ["sweep study.toml --topics 2,3 --seeds 1"],
    ),
    "a damaged label": ("topics mislabelled", "did you mean 'label'", ["topics model"]),
    "a command": ("topcs model", "did you mean 'topics'", ["topics model"]),
}


@pytest.mark.parametrize("case", TYPED)
def test_typed(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed) -> None:
    monkeypatch.chdir(tmp_path)
    fails, message, helps = TYPED[case]
    files = {
        "a.csv": "text\n" + "\n".join(ALL),
        "study.toml": STUDY + B,
        "theta.csv": '"id","known_words","topic","text"\n1,2,0,oak\n',
        "bad.toml": 'stop_word = "none"',
        "good.toml": 'stop_words = "none"',
    }
    for name, content in files.items():
        Path(name).write_text(content)
    TWO.to_csv("two.csv", index=False)
    one: dict[str, Any] = {"shares": {"east": np.full(3, 1 / 3)}, "documents": {"east": 9}}
    made(**one).save_pretrained("east")
    for name in ("model", "mislabelled"):
        made().save_pretrained(name)
    Path("mislabelled/topics.json").write_text(json.dumps([{"topic": 0, "Label": "x"}]))

    if " run" in fails + " ".join(helps):
        assert typed(*["train", "study.toml", "--out", "run"])[0] == 0
    code, _, err = typed(*fails.split())
    assert (code, message in err) == (2, True), err
    for line in helps:
        assert typed(*line.split())[::2] == (0, "")
