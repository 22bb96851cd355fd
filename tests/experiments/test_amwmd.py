"""The experiments: verdicts on hand-made scores, and a small run from files to pictures."""

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.gfedntm import amwmd as experiment
from experiments.gfedntm import amwmd_scores
from experiments.gfedntm.amwmd import Settings, reproduce
from experiments.gfedntm.amwmd_claims import CONTROLS, Scores, findings, sentences
from experiments.gfedntm.word_mover import WordVectors, amwmd
from fedtopics import Corpus, Study
from fedtopics.terminal import display
from tests.helpers.command_line import Typed

MODELS = ("a", "b", "c", "federated 10", "federated 25", *CONTROLS)


def scores(n_seeds: int = 2, **values: object) -> Scores:
    """Three clients, whose models are 0.9 apart; other models 0.8, unless given."""
    distances = np.full((n_seeds, 3, len(MODELS)), 0.8)
    distances[:, :, :3] = 0.9 * (1 - np.eye(3))
    for model, value in values.items():
        distances[:, :, MODELS.index(model.replace("_", " "))] = value
    return Scores("news", dict.fromkeys("abc", 20), MODELS, distances)


def outcome(measured: Scores, number: int) -> tuple[str, int]:
    finding = findings(measured)[number]
    return finding.outcome, finding.n_closer


def test_claims_that_hold() -> None:
    measured = scores(federated_10=0.7, federated_25=0.6)
    assert outcome(measured, 0) == outcome(measured, 1) == ("holds", 3)
    first, second = sentences(measured)[:2]
    assert first.startswith("Claim 1 of the paper: the federated model of 10 topics is closer")
    assert first.endswith(
        "holds, for 3 of 3 clients; on average 0.700 against 0.900, 0.200 closer, more than "
        "seeds differ (deviation 0.000)."
    )
    assert "on average 0.600 against 0.700, 0.100 closer" in second


def test_claims_that_do_not_hold() -> None:
    measured = scores(federated_10=[0.7, 0.95, 0.9], federated_25=0.97)
    assert outcome(measured, 0) == ("holds in part", 1), "0.9 is no closer than 0.9"
    assert outcome(measured, 1) == ("does not hold", 0)
    assert "0.120 farther" in sentences(measured)[1]
    # What more topics explain.
    measured = scores(federated_10=0.7, federated_25=0.6, random_10=0.9, random_25=0.85)
    assert sentences(measured)[3] == (
        "From 10 to 25 topics, random topics come 0.050 closer and federated topics 0.100: 50% of "
        "what the federated models gain from them."
    )


@pytest.mark.parametrize(
    ("federated", "random", "said"),
    [
        (0.7, 0.85, "random topics come 0.050 closer and federated topics -0.100."),
        (0.6, 0.95, "random topics come -0.050 closer and federated topics 0.000."),
        (0.5, 0.70, "random topics come 0.200 closer and federated topics 0.100."),
    ],
)
def test_what_is_no_share_has_no_percentage(federated: float, random: float, said: str) -> None:
    measured = scores(federated_10=0.6, federated_25=federated, random_10=0.9, random_25=random)
    assert sentences(measured)[3] == f"From 10 to 25 topics, {said}"


def test_a_difference_is_held_against_that_of_seeds() -> None:
    measured = scores(federated_10=[[0.7], [0.9]])
    assert findings(measured)[0].deviation == pytest.approx(np.sqrt(0.02))
    assert "0.100 closer, no more than seeds differ (deviation 0.141)" in sentences(measured)[0]
    alone = sentences(scores(n_seeds=1))
    assert alone[-1].startswith("This is one seed")
    assert not any("than seeds differ" in sentence for sentence in alone[:-1])


def test_the_sum_of_equation_7() -> None:
    plain = scores(federated_10=0.7).plain()
    assert plain["sum"][0][3] == pytest.approx(7)
    assert plain["mean"][0][3] == pytest.approx(0.7)
    assert plain["by_seed"][1][0][:3] == [0, 0.9, 0.9]


FIELDS = ("law", "logic", "markets")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three fields of ten documents, their words' vectors, training that is short."""
    rng = np.random.default_rng(0)
    words = {field: [f"{field}{c}" for c in "abcdefghijklmnopqrst"] for field in FIELDS}
    documents = [
        rng.choice([*words[field], "common", "shared"], 15).tolist()
        for field in FIELDS
        for _ in range(10)
    ]
    table = pa.table({"node": np.repeat(FIELDS, 10), "tokens": documents})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data/s2_tiny.parquet")
    vocabulary = sorted({word for document in documents for word in document})
    vectors = WordVectors(
        {w: n for n, w in enumerate(vocabulary)}, rng.normal(size=(len(vocabulary), 4))
    )
    monkeypatch.setattr(experiment, "vectors_of", lambda _: vectors)
    monkeypatch.setattr(experiment, "sentence_encoder", lambda _: None)
    monkeypatch.setattr(experiment, "QUICK_ROUNDS", 2)
    monkeypatch.setattr(amwmd_scores, "DRAWS", 2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("experiments.display.console", display.Console(width=100))
    return tmp_path / "data"


ARGUMENTS = ("gfedntm-amwmd", "--data", "data", "--quick", "--out", "out", "--network", "prodlda")
TOPICS = Path("out/topics/prodlda-default-quick/s2_tiny")


def test_from_files_to_pictures_and_again(
    data: Path, monkeypatch: pytest.MonkeyPatch, experiments: Typed
) -> None:
    code, printed, _ = experiments(*ARGUMENTS)
    assert code == 0
    assert "10 of 10: s2_tiny: centralised 25, seed 0" in printed
    assert "Claim 1 of the paper" not in printed
    assert "Made-up texts or few documents" in printed
    assert "…" not in printed, "no number is cut off"
    page = Path("out/amwmd.md").read_text()
    assert "python -m experiments gfedntm-amwmd --data FOLDER --quick --network prodlda`" in page
    assert "| 1 law | - |" in page
    assert str(data.parent) not in page
    assert Path("out/amwmd-s2_tiny.png").read_bytes().startswith(b"\x89PNG")
    assert "own, other seed" in Path("out/amwmd-s2_tiny.svg").read_text()

    damaged = TOPICS / "law-seed-0.json"
    damaged.write_text(damaged.read_text()[:-9])
    trained: list[Sequence[str]] = []
    train = experiment.train
    monkeypatch.setattr(
        experiment,
        "train",
        lambda study, corpora, **rest: trained.append([*corpora]) or train(study, corpora, **rest),
    )
    code, printed, _ = experiments(*ARGUMENTS, "--json")
    assert code == 0
    assert trained == [["law"]], "only the damaged one is trained again"
    report = json.loads(printed)
    assert report == json.loads(Path("out/amwmd.json").read_text())
    by_hand(report["data_sets"][0])


def by_hand(result: dict[str, object]) -> None:
    vectors = experiment.vectors_of([])

    def topics(name: str) -> list[list[str]]:
        word_lists = json.loads((TOPICS / f"{name}.json").read_text())["topics"]
        assert {len(topic) for topic in word_lists} == {10}
        return list(word_lists)

    models, means, sums = (np.array(result[key]) for key in ("models", "mean", "sum"))
    law_topics = topics("law-seed-0")
    others = topics("logic-seed-0") + topics("markets-seed-0")
    expected = {
        "law": law_topics,
        "logic": topics("logic-seed-0"),
        "federated 25": topics("federated-25-seed-0"),
        "all of others": others,
        "25 of others": others,  # there are but twenty
        "own, other seed": topics("law-seed-1"),
    }
    for model, evaluated in expected.items():
        distance = amwmd(law_topics, evaluated, vectors)
        column = models.tolist().index(model)
        assert means[0, column] == pytest.approx(distance.mean, abs=1e-9), model
        assert sums[0, column] == pytest.approx(distance.total, abs=1e-8), model
    assert (means > means[:, :3].min()).sum() == means.size - 3, "only the own is at no distance"


def test_no_variant_replaces_what_another_left() -> None:
    quick = Settings(Path("data"), quick=True, network="prodlda")
    assert quick.folder == Path("runs/gfedntm-amwmd-prodlda-default-quick")
    others = ({"quick": False}, {"preset": "paper"}, {"network": "neurallda"})
    variants = [quick, *(replace(quick, **other) for other in others)]
    assert len({settings.variant for settings in variants}) == 4
    assert len({settings.folder for settings in variants}) == 4


def test_what_topics_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study.make()
    corpus = Corpus.of([["oak"], ["elm"]])
    seen = [corpus, *(corpus.with_embeddings(np.full((2, 3), fill)) for fill in (0.0, 1.0))]
    made_of = {experiment._made_of(study, {"a": one}) for one in seen}
    monkeypatch.setattr(experiment, "__version__", "0.0.0")
    assert len({experiment._made_of(study, {"a": corpus}), *made_of}) == 4


def test_the_recipe_as_published() -> None:
    """Algorithm 1 for 100 rounds of 64 documents each; own models of 100 epochs."""
    corpora = {name: Corpus.of([["oak"]] * 320) for name in ("a", "b")}
    settings = Settings(Path("data"), preset="paper")
    data = experiment.DATA_SETS[0]
    tasks = {task.name: task for task in experiment._tasks(corpora, 1)}

    def recipe(name: str) -> tuple[object, ...]:
        method = experiment._study(settings, data, tasks[name]).method
        return method.optimizer, method.batch_split, method.batch_size, method.max_rounds

    assert recipe("federated 10") == ("sgd", "fixed", 64, 100)
    assert recipe("a") == ("adam", "proportional", 64, 500)
    assert recipe("centralised 25") == ("adam", "proportional", 128, 100)


def test_a_node_may_be_a_number(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"node": [0, 1, None, 0], "tokens": [["a"], ["b"], ["c"], ["d"]]}),
        tmp_path / "s2_tiny.parquet",
    )
    clients = experiment.DATA_SETS[0].read(tmp_path / "s2_tiny.parquet")
    assert {name: len(corpus) for name, corpus in clients.items()} == {"": 1, "0": 2, "1": 1}


WRONG = {
    "no folder": (("--data", "nowhere"), "There is no s2_tiny.parquet in nowhere; name"),
    "no column": (("--data", "bare"), "There is no column 'node' in bare/s2_tiny.parquet"),
    "one client": (("--data", "one"), "'node' of one/s2_tiny.parquet names 1 client"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_what_is_missing_is_one_sentence(
    arguments: tuple[str, str], message: str, data: Path, experiments: Typed
) -> None:
    table = pq.read_table(data / "s2_tiny.parquet")
    for name, part in {"bare": table.drop_columns("node"), "one": table.slice(0, 10)}.items():
        Path(name).mkdir()
        pq.write_table(part, f"{name}/s2_tiny.parquet")
    code, _, said = experiments(*ARGUMENTS, *arguments)
    assert code == 2
    assert message in said


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(("module", "package"), [("matplotlib", "matplotlib"), ("ot", "POT")])
def test_a_missing_package_is_named_before_work(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch, experiments: Typed
) -> None:
    monkeypatch.setattr(
        "fedtopics.extras.find_spec", lambda name: None if name == module else find_spec(name)
    )
    code, _, said = experiments(*ARGUMENTS)
    assert code == 1
    assert f"need the package {package}, which is not installed" in said
    assert "pip install '.[experiments]'" in said
    assert not Path("out").exists()


def test_the_whole_experiment_has_all_data_sets_and_several_seeds(data: Path) -> None:
    settings = Settings(data, Path("out"), seeds=2, network="prodlda", preset="paper")
    assert [one.name for one in settings.data_sets] == ["s2_tiny", "m10", "news_outlets"]
    assert list(settings.used_seeds) == [0, 1]
    options = "--data FOLDER --seeds 2 --network prodlda --preset paper"
    assert settings.command == f"python -m experiments gfedntm-amwmd {options}"
    with pytest.raises(
        ValueError, match=r"There is no m10\.parquet in .*data; name its folder with --data"
    ):
        reproduce(settings)


@pytest.mark.usefixtures("data")
def test_words_without_vectors_fail(monkeypatch: pytest.MonkeyPatch, experiments: Typed) -> None:
    few = WordVectors({"unheard": 0}, np.ones((1, 2)))
    monkeypatch.setattr(experiment, "vectors_of", lambda _: few)
    code, _, said = experiments(*ARGUMENTS)
    assert code == 2
    assert "know no word of a topic of client 'law'." in said
