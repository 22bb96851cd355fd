"""A name that matches nothing is refused wherever people give one, with the nearest that does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedtopics import LDA, NMF, GuidedLDA, Policy, Study, TopicEstimator, train
from fedtopics.errors import InputError, nearest_names
from fedtopics.federation.study_tables import read_rules
from fedtopics.federation.sweep import sweep
from fedtopics.metrics import METRICS
from tests.helpers.models import made

TEXTS = ["oak and beech and fir grow here", "a ketch and a sloop and a yawl sail"] * 10
CLIENTS = {"south": TEXTS, "north": TEXTS}
OPEN = Policy(min_persons=1)
MODEL = made()
SOUTH = "no client 'South'; did you mean 'south'"
YEARS = dict.fromkeys(CLIENTS, [2026] * 20)
PLAN = {"method": {"name": "nmf"}, "clients": {"south": {}, "north": {}}}


def written(folder: Path, content: str) -> Path:
    path = folder / "file.toml"
    path.write_text(content)
    return path


IN_PYTHON: list[tuple[Callable[[], Any], str]] = [
    (lambda: NMF(2).fit_clients(CLIENTS, policies={"South": OPEN}), SOUTH),
    (lambda: NMF(2).fit_clients(CLIENTS, names={"South": "The South"}), SOUTH),
    (lambda: LDA(2).partial_fit_clients(CLIENTS, policies={"South": OPEN}), SOUTH),
    (lambda: NMF(2).fit_clients(CLIENTS, policies=[OPEN, OPEN]), "Give a mapping of client"),
    (lambda: NMF(2).fit_clients(CLIENTS, policies={"south": {}}), "is not a Policy"),
    (lambda: NMF(2).fit_clients([TEXTS, TEXTS], policies={1: OPEN}), "no client 1; choose from"),
    (lambda: train(Study(), CLIENTS, policies={"South": OPEN}), SOUTH),
    (lambda: train(Study(**PLAN), {"South": TEXTS, "north": TEXTS}), "'South'; did you mean"),
    (lambda: sweep(Study(), [2], 1, "x", corpora=CLIENTS, policies={"South": OPEN}), SOUTH),
    (lambda: sweep(Study(**PLAN), [2], 1, "x", corpora={"South": TEXTS}), "did you mean 'south'"),
    (lambda: MODEL.with_client_names({"South": "The South"}), SOUTH),
    (lambda: MODEL.with_labels(["Trees"]), "Give a list of 3 labels"),
    (lambda: MODEL.topics_over_time(CLIENTS, YEARS | {"South": []}), SOUTH),
    (lambda: MODEL.topics_per_class(CLIENTS, ["a"] * 20), "Give a mapping of client"),
    (lambda: NMF(2, max_word=9).fit(TEXTS), "no setting 'max_word'; did you mean 'max_words'"),
    (lambda: NMF(2).set_params(stopwords=None).fit(TEXTS), "did you mean 'stop_words'"),
    (lambda: NMF(2, settings={"token": "x"}).fit(TEXTS), "did you mean 'tokenizer'"),
    (lambda: TopicEstimator(2, method="ldaa").fit(TEXTS), "no method 'ldaa'; did you mean 'lda'"),
    (lambda: Study.make(method={"name": "nmf", "over_time": {"perod": 1}}), "'period'"),
    (lambda: Study.make(clients={"north": {"dta": "x"}}), "north.dta'; did you mean 'data'"),
    (lambda: Study.make(text={"langage": "de"}), "did you mean 'languages'"),
    (lambda: Study.make(federation={"quorom": 3}), "did you mean 'quorum'"),
    (lambda: Study.make(differential_privacy={"epsilon": 1, "detla": 0.1}), "did you mean 'delta'"),
    (lambda: METRICS.find("npmy"), "no metric 'npmy'; did you mean 'npmi'"),
]


@pytest.mark.parametrize(("call", "message"), IN_PYTHON)
def test_in_python(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((InputError, ValueError), match=message):
        call()


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_rules, 'stop_word = "none"', "did you mean 'stop_words'"),
        (Study.read, "[methd]\nname = 'nmf'", "did you mean 'method'"),
        (Study.read, "[vocabulary]\nmax_word = 3", "max_word'; did you mean 'max_words'"),
        (Study.read, "[about]\npurpos = 'x'", "did you mean 'purpose'"),
        (lambda path: GuidedLDA(path).fit(TEXTS), "seed_topic = [['oak']]", "'seed_topics'"),
    ],
)
def test_in_files(read: Callable[[Path], Any], content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read(written(tmp_path, content))


def test_in_a_saved_estimator(tmp_path: Path) -> None:
    folder = NMF(2, max_rounds=2).fit(TEXTS).save(tmp_path)
    with pytest.raises(InputError, match="'analyser'; did you mean 'analyzer'"):
        NMF.load(folder, analyser=str.split)
    assert NMF.load(folder, analyzer=str.split, rarity=0.5).rarity == 0.5


def test_a_long_list_is_cut() -> None:
    assert nearest_names("x", range(1000, 1040)).count(",") == 20


def test_a_study_may_name_some_of_its_clients() -> None:
    plan = {"method": {"name": "nmf", "n_components": 2}}
    study = Study(**plan, clients={"south": {"name": "The South"}})
    assert train(study, CLIENTS, policies={"north": OPEN}).client_names == {"south": "The South"}
