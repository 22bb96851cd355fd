"""The study: one typed TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedtopics.errors import StudyError
from fedtopics.federation.study import Study, check_client_name, example_study, why_plain
from fedtopics.harmless import for_terminal
from fedtopics.methods.gfedntm.client import GFedNTMClient
from tests.helpers.studies import read

# What cannot be used


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sed = 1", "there is no key 'sed'; did you mean 'seed'"),
        ("[method]\ntopics = 5", "there is no key 'method.topics'"),
        ("[clients.a]\ndata = 'a'\ncolumn = 'x'", "there is no key 'clients.a.column'"),
        ('seed = "one"', "'seed' is 'one': Input should be a valid integer"),
        ("[method]\nhidden = [-1, 5]", "'method.hidden"),
        ("[method.stop_when]\npatience = 0", "patience is a setting of its own, of the methods"),
        ("[method.stop_when]\nlos = 0.5", "no stop rule 'los'; did you mean 'loss'"),
        ("[method]\nlearning_rate = inf", "'method.learning_rate' is inf"),
        ("[method]\nn_components = 1", "'method.n_components' is 1: .* greater than or equal to 2"),
        (
            "[method]\npreset = 'best'",
            "'method.preset' is 'best': .* 'default', 'paper', 'avitm' or 'mixtures'",
        ),
        ("[method]\npreset = ['paper']", "'method.preset': Input should"),
        ("[text]\nstop_words = 'klingon'", "no stop words for 'klingon'; known: arabic, .*german"),
        ("[text]\nversion = 1", "text.version = 1, and this fedtopics makes words by version 2"),
        ("[method]\nnetwork = 'lda2vec'", "There is no network 'lda2vec'; known: prodlda, neurall"),
        ("[method]\nname = 'ldaa'", "no method 'ldaa'; did you mean 'lda'"),
        ("method = 'lda'", "'method' is 'lda': a method is a table with name"),
        ("[method]\nname = 'lda'\nnetwork = 'prodlda'", "there is no key 'method.network'"),
        ("[method]\nname = 'lda'\nalpha = -1", "'method.alpha' is -1"),
        ("[method]\ncoherence = 'sentences'", "'windows', 'documents' or 'nothing'"),
        ("[method.embedding]\nmodel = ''", "'method.embedding.model' is ''"),
        ("clients = 3", "'clients' is 3"),
        ("[clients]\na = 'a.csv'", r"each client is a table \[clients\.NAME\]"),
        ("seed = ", "Invalid value"),
        (
            "privacy = {epsilon = 1}\n[method]\nname = 'lda'\n[method.over_time]\n"
            "begin = 2025-01-01\nend = 2025-02-01",
            "lda cannot keep a bound for each document",
        ),
        (
            "[method.over_time]\nbegin = 0001-01-01\nend = 9999-12-31",
            "over_time has 119,988 periods, more than 1,000: take longer ones",
        ),
    ],
)
def test_unusable_study(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(StudyError, match=rf"The study .*study\.toml cannot be used: .*{message}"):
        read(tmp_path, content)


@pytest.mark.parametrize("name", ["", "a b", "../a", ".a", "a\n", "ä"])
def test_bad_client_names(name: str) -> None:
    with pytest.raises(StudyError, match="cannot name a client; use letters, digits"):
        check_client_name(name)
    with pytest.raises(StudyError, match="cannot name a client; use letters, digits"):
        Study.make(clients={name: {"data": "a.csv"}})


# What is agreed on


def test_fingerprint_is_of_what_is_agreed_on() -> None:
    clients = {"a": {"data": "a.csv"}, "b": {"data": "b.csv"}}
    first = Study.make(clients=clients).fingerprint
    same = [
        {"clients": {"b": {"data": "/else/b.parquet", "text": "body"}, "a": {"data": "a.csv"}}},
        {"clients": {"a": {"data": "a.csv", "policy": "p.toml"}, "b": {"data": "b.csv"}}},
        {"clients": clients, "name": "another"},
        {"clients": clients, "checkpoint_every": 7},
        {"clients": {"a": {"embedding": "e"}, "b": {"embedding_model": "/models/m"}}},
    ]
    others = [
        {"clients": {"a": {"data": "a.csv"}, "c": {"data": "b.csv"}}},
        {"clients": {"a": {"data": "a.csv"}}},
        {"clients": clients, "seed": 1},
        {"clients": clients, "method": {"n_components": 21}},
        {"clients": clients, "method": {"network": "combinedtm"}},
        {"clients": clients, "method": {"embedding": {"model": "all-mpnet-base-v2"}}},
        {"clients": clients, "method": {"coherence": "nothing"}},
        {"clients": clients, "text": {"lowercase": False}},
        {"clients": clients, "vocabulary": {"max_words": 10}},
    ]
    assert len(bytes.fromhex(first)) == 32, "all bits of a SHA-256"
    assert {Study.make(**given).fingerprint for given in same} == {first}
    assert len({first, *(Study.make(**given).fingerprint for given in others)}) == 10


def test_the_clients_of_a_run_are_part_of_the_fingerprint() -> None:
    clients = {"a": {"data": "a.csv"}, "b": {"data": "b.csv"}}
    named = Study.make(clients=clients)
    assert Study().with_clients("ab").fingerprint == named.fingerprint
    assert Study().with_clients("a").fingerprint != Study().fingerprint
    assert named.with_clients("ac").clients["a"] == named.clients["a"]


# The method's rules


def test_the_papers_preset() -> None:
    paper = Study.make(method={"preset": "paper"}).method
    assert (paper.learn_prior, paper.word_bias, paper.relevance) == (True, False, 1.0)
    assert (paper.dropout, paper.alpha) == (0.2, 1.0)
    assert (paper.norm, paper.optimizer, paper.batch_split) == ("local", "sgd", "fixed")
    assert Study().method.relevance is None


def test_the_first_prodldas_preset() -> None:
    """The paper's network, trained as by default: what was preset "paper" at first."""
    avitm, paper = (Study.make(method={"preset": name}).method for name in ("avitm", "paper"))
    assert (avitm.norm, avitm.optimizer, avitm.learning_rate) == ("sync", "adam", 0.002)
    differing = {key for key, value in avitm if value != getattr(paper, key)}
    assert differing == {"preset", "norm", "optimizer", "learning_rate", "batch_split"}


def test_networks_that_see_an_embedding() -> None:
    seeing = {
        name: Study.make(method={"network": name}).method.needed_embedding is not None
        for name in ("prodlda", "neurallda", "combinedtm", "zeroshottm")
    }
    assert seeing == {"prodlda": False, "neurallda": False, "combinedtm": True, "zeroshottm": True}


def test_how_often_which_function_is_called() -> None:
    def schedule(**method: Any) -> dict[str, str]:
        return GFedNTMClient.schedule(Study.make(method=method).method)

    assert schedule() == {
        "size": "once instead of vocabulary, if a model's own words are kept",
        "vocabulary": "once",
        "counted": "once",
        "forward": "twice a round",
        "loss": "each round",
        "backward": "twice a round",
        "gradients": "each round instead, in a study with a single client",
        "shares": "once, at the end",
        "word_sums": "once, at the end",
        "pairs": "twice, at the end",
    }
    neurallda = schedule(network="neurallda", coherence="nothing")
    assert (neurallda["forward"], neurallda["backward"]) == ("each round", "each round")
    assert "pairs" not in neurallda
    assert "forward" not in schedule(network="neurallda", norm="server")


MASKED: list[tuple[dict[str, Any], str, str]] = [  # settings, clients, why not
    ({}, "abc", ""),
    ({"federation": {"outliers": "none"}}, "abc", ""),
    ({"method": {"clients_per_round": 3}}, "abcd", ""),
    ({}, "ab", "a round has fewer than 3 clients"),
    ({}, "", "a round has fewer than 3 clients"),
    ({"method": {"clients_per_round": 2}}, "abcd", "a round has fewer than 3 clients"),
    ({"method": {"name": "flda"}}, "abc", "what leaves a client in flda is merged one by one"),
    (
        {"federation": {"outliers": "median"}},
        "abc",
        'federation.outliers = "median" looks at updates',
    ),
    ({"federation": {"outliers": "clip"}}, "abc", 'federation.outliers = "clip" looks at updates'),
    ({"aggregation": "plain"}, "abc", "the study says so"),
]


@pytest.mark.parametrize(("given", "clients", "why"), MASKED)
def test_secure_aggregation_is_the_default(given: dict[str, Any], clients: str, why: str) -> None:
    study = Study.make(**given, clients={name: {} for name in clients})
    assert study.is_secure == (not why)
    assert why_plain(study).startswith(why)
    assert (study.agreed.get("aggregation") == "secure") == study.is_secure
    plain = study.model_copy(update={"aggregation": "plain"})
    assert (plain.fingerprint == study.fingerprint) == bool(why), "as it was before there were any"
    if why and "aggregation" not in given and clients:
        with pytest.raises(StudyError, match=f'aggregation = "secure" is not possible: {why}'):
            Study.make(**given, aggregation="secure", clients={name: {} for name in clients})


# Studies as TOML, written and read again


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"name": 'Ärzte "und" \\ Anwälte \U0001f333', "seed": 3},
        {"text": {"own_stop_words": ["".join(map(chr, range(1, 160)))]}, "seed": 2**63 - 1},
        {"text": {"own_stop_words": ["\u202e\u2028\U000e0041\uffff"]}},
        {"method": {"n_components": 7, "hidden": [5, 6], "max_rounds": 9, "preset": "paper"}},
        {
            "method": {
                "preset": "paper",
                "relevance": 0.25,
                "learning_rate": 1e-5,
                "tolerance": 1e-9,
            }
        },
        {"method": {"optimizer": "fedadam", "local_steps": 3, "norm": "server"}},
        {"method": {"preset": "paper", "relevance": None}},
        {"method": {"network": "combinedtm", "embedding": {"model": "a/b", "dimension": 5}}},
        {"method": {"network": "neurallda", "coherence": "documents", "relevance": 0.0}},
        {
            "text": {"stop_words": "none", "own_stop_words": ["é", 'q"'], "ngrams": [1, 2]},
            "method": {"coherence": "documents"},
        },
        {"text": {"token_pattern": r"(?u)\b\w+'\"\b"}},
        {"vocabulary": {"min_clients": 2, "max_document_share": 0.125}},
        {
            "clients": {
                "north.1": {"data": "/data/a b.csv", "text": "Body", "policy": "/p.toml"},
                "2-South_": {"data": "/data", "tokens": "t", "id": "i", "label": "l"},
                "west": {"data": "/data", "embedding": "e", "embedding_model": "/models/b"},
            }
        },
    ],
)
def test_what_is_written_is_read_again(tmp_path: Path, given: dict[str, Any]) -> None:
    study = Study.make(**given)
    again = read(tmp_path, study.to_toml())
    assert for_terminal(study.to_toml()) == study.to_toml()
    assert again == study
    assert again.fingerprint == study.fingerprint
    assert again.to_toml() == study.to_toml()


def test_the_example_is_the_default(tmp_path: Path) -> None:
    example = read(tmp_path, example_study())
    clients = {
        name: {"data": tmp_path / f"{name}.csv", "text": "text"} for name in ("north", "south")
    }
    assert example == Study.make(name="example", clients=clients)
    assert example.method == Study().method


def test_the_example_names_every_key(tmp_path: Path) -> None:
    uncommented = "\n".join(line.removeprefix("# ") for line in example_study().splitlines())
    method = Study().method
    for table in (method, method.embedding, Study().text, Study().vocabulary):
        for key in type(table).model_fields:
            assert f"\n{key} = " in uncommented
