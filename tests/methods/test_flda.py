"""F-LDA: rounds of new documents, what is new and what is gone, and what never leaves a client."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import Corpus, Study, TopicModel, train
from fedtopics.errors import StudyError
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.program import client_of
from fedtopics.inference.gibbs import Sampled
from fedtopics.methods.core.client import COUNTED
from fedtopics.methods.core.plan import ClientContext, WarmStart
from fedtopics.methods.flda import client as client_module
from fedtopics.methods.flda.client import FLDAClient
from fedtopics.methods.flda.topic_lists import pack_topics, unpack_topics
from tests.helpers.clusters import overheard
from tests.helpers.federation import tokens_of, train_and_note, train_until_killed
from tests.helpers.noted import Called, noted
from tests.helpers.streams import ABC, DRIFT, SIZE, STEADY, THEMES, coming, documents, flda, stream

pytest.importorskip("tomotopy")

CANARY = "quetzalcoatl"


def trained(plan: Study, corpora: Mapping[str, Any], **how: Any) -> tuple[TopicModel, Any]:
    """The model, and the rounds' events."""
    model, events = train_and_note(plan, corpora, **how)
    return model, events.of("round")


def theme(words: list[str]) -> str:
    """What words are about: all of them, or it is none."""
    (subject,) = {word.rstrip("0123456789") for word in words}
    return subject


def themes(topics: list[dict[str, Any]]) -> set[str]:
    """What topics that an event names are about."""
    return {theme(topic["words"]) for topic in topics}


def final(model: TopicModel) -> list[str]:
    """What each topic of a model is about."""
    return [theme(words) for words in model.topics(5)]


def same(one: TopicModel, other: TopicModel) -> bool:
    first, second = (model.weights["pseudo_counts"] for model in (one, other))
    return one.vocabulary.words == other.vocabulary.words and first.tobytes() == second.tobytes()


def test_the_papers_presets() -> None:
    def method(**given: Any) -> Any:
        return Study.make(method={"name": "flda", **given}).method

    paper = method(preset="paper-transitive", memory=0.5)
    assert (paper.linkage, paper.absent_words) == ("single", "ignored")
    assert (paper.keep_unmatched, paper.refill, paper.stop) == (False, False, "coherence")
    assert (paper.n_words, paper.spare_topics, paper.n_local) == (10, 0, 20)
    assert (paper.memory, paper.relevance) == (0.5, 1.0), "what is given wins"
    pairwise = method(preset="paper-pairwise")
    other = {"preset", "linkage", "keep_unmatched", "refill", "memory"}
    assert pairwise.model_dump(exclude=other) == paper.model_dump(exclude=other)
    assert (pairwise.linkage, pairwise.keep_unmatched, pairwise.refill) == ("pairs", True, True)
    default = method()
    assert (default.linkage, default.keep_unmatched, default.stop) == ("average", True, "documents")
    assert default.n_words == 30 and default.n_local > 20


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"n_components": 2, "seed_topics": [["a"], ["b"], ["c"]]},
            "there are 3 seed_topics, more than n_components = 2.",
        ),
        ({"seed_topics": [["a"], []]}, "topic 1 of seed_topics needs at least one word."),
        (
            {"stop": "coherence", "coherence": "nothing"},
            'stop = "coherence" needs a coherence other than "nothing".',
        ),
    ],
)
def test_settings_that_do_not_go_together(given: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError) as error:
        Study.make(method={"name": "flda"} | given)
    assert str(error.value).endswith(f": {message}")


def test_how_often_which_function_is_called() -> None:
    def often(**given: Any) -> dict[str, str]:
        return {
            name: str(of)
            for name, of in FLDAClient.in_study(flda(coherence="documents", **given).method).items()
        }

    end = ("document_counts", "word_counts", "topic_shares", "word_sums", "word_pairs")
    expected = {"local_topics": "each round", **dict.fromkeys(end, "once, at the end")}
    assert often() == expected | {"word_pairs": "once, at the end"}
    assert often(stop="coherence")["document_counts"] == "each round, and once, at the end"
    assert FLDAClient.in_study(flda().method).keys() == expected.keys() - {"word_pairs"}


def test_the_same_seed_has_the_same_bits_in_any_order_of_clients() -> None:
    corpora = stream(STEADY)
    plan = flda()
    model, events = trained(plan, corpora)
    assert set(final(model)) == {"apple", "bread", "cloud"}
    for order in (corpora, dict(reversed(corpora.items()))):
        other = train(plan, order)
        assert same(other, model)
        assert other.topics() == model.topics()
        assert other.info == model.info
    assert [event["clients"] for event in events] == [["a", "b", "c"]] * 3
    assert not same(train(plan.model_copy(update={"seed": 1}), corpora), model)


def test_an_interrupted_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    corpora = stream(DRIFT)
    plan = flda(coherence="documents", seed_topics=[["bread3", "bread4"]])
    whole, rounds = trained(plan, corpora)
    train_until_killed(1, plan, corpora, out=tmp_path)
    model, rest = trained(plan, corpora, out=tmp_path, resume=True)
    # The event came before the checkpoint: the round is worked again, with the same documents.
    assert [event["round"] for event in rest] == [1, 2, 3]
    assert [event["arrived"] for event in rest] == [event["arrived"] for event in rounds]
    assert same(model, whole)
    assert model.info == whole.info
    again = train(plan, corpora, out=tmp_path, resume=True)
    assert same(again, whole)
    assert again.info == whole.info


def test_a_client_with_too_few_new_documents_takes_part_later() -> None:
    corpora = stream(STEADY, clients="ab")
    corpora["c"] = coming({1: (SIZE, ABC), 2: (10, ABC), 3: (15, ABC)})
    model, events = train_and_note(flda(), corpora)
    assert [event["arrived"] for event in events.of("round")] == [
        {"a": SIZE, "b": SIZE, "c": SIZE},
        {"a": SIZE, "b": SIZE, "c": 0},
        {"a": SIZE, "b": SIZE, "c": 25},
    ]
    assert events.of("skipped") == [
        {"event": "skipped", "client": "c", "round": 2, "documents": 10, "least": 20}
    ]
    came = [event["documents"] for event in events.of("arrived") if event["client"] == "c"]
    assert came == [SIZE, 25]
    assert model.info["seen"] == 7 * SIZE + 25
    assert dict(model.documents) == {"a": 3 * SIZE, "b": 3 * SIZE, "c": SIZE + 25}


@pytest.mark.parametrize(("patience", "last"), [(1, 4), (2, 5)])
def test_a_run_ends_when_nothing_new_comes(patience: int, last: int) -> None:
    model, events = train_and_note(flda(max_rounds=20, patience=patience), stream(STEADY))
    assert [event["round"] for event in events.of("round")] == list(range(1, last + 1))
    (stopped,) = events.of("stopped")
    assert stopped["reason"] == "no client has enough new documents"
    assert set(final(model)) == {"apple", "bread", "cloud"}
    idle = events.of("round")[-1]
    assert (idle["documents"], idle["new"], idle["vanished"]) == (0, [], [])
    assert len(idle["topics"]) == 3


def test_a_topic_that_appears_and_one_that_vanishes() -> None:
    model, (first, second, third) = trained(flda(), stream(DRIFT))
    ids = {theme(topic["words"]): topic["id"] for topic in first["topics"]}
    assert ids.keys() == {"apple", "bread", "cloud"}
    assert sorted(first["new"]) == [0, 1, 2]
    assert (second["new"], second["vanished"]) == ([], [])
    assert {theme(topic["words"]): topic["id"] for topic in second["topics"]} == ids
    assert third["new"] == [3]
    assert themes(third["vanished"]) == {"cloud"}
    assert third["vanished"][0]["id"] == ids["cloud"]
    after = {theme(topic["words"]): topic["id"] for topic in third["topics"]}
    assert after == {"apple": ids["apple"], "bread": ids["bread"], "dance": 3}
    assert all(len(topic["words"]) == 5 for topic in third["topics"])
    assert dict(zip(final(model), model.info["ids"], strict=True)) == after
    assert not {*model.vocabulary.words} & {*THEMES["cloud"]}


def test_what_only_an_absent_client_has_does_not_vanish() -> None:
    most = ["apple", "bread", "dance"]
    corpora = {
        "a": coming(dict.fromkeys((1, 2, 3, 4), (SIZE, most))),
        "b": coming(dict.fromkeys((1, 2, 3, 4), (SIZE, most)), seed=1),
        "c": coming({1: (3 * SIZE, ["cloud"]), 4: (SIZE, ["apple"])}, seed=2),
    }

    def clouds(topics: list[dict[str, Any]]) -> list[int]:
        return [topic["id"] for topic in topics if topic["words"][0] in THEMES["cloud"]]

    model, events = trained(flda(n_components=4, max_rounds=4), corpora)
    assert [event["arrived"]["c"] for event in events] == [3 * SIZE, 0, 0, SIZE]
    for event in events[:3]:
        assert not clouds(event["vanished"])
        assert clouds(event["topics"])[0] == clouds(events[0]["topics"])[0]
    assert clouds(events[3]["vanished"]) == clouds(events[2]["topics"])
    assert not {*model.vocabulary.words} & {*THEMES["cloud"]}


def test_given_topics_stay_first() -> None:
    given = [THEMES["dance"][:8], THEMES["cloud"][:8]]
    model, events = trained(flda(n_components=4, seed_topics=given, strength=0.5), stream(DRIFT))
    for event in events:
        assert [topic["id"] for topic in event["topics"][:2]] == [0, 1]
        assert not {0, 1} & {topic["id"] for topic in event["vanished"]}
        assert not {0, 1} & {*event["new"]}
        assert theme(event["topics"][0]["words"]) == "dance"
        assert theme(event["topics"][1]["words"]) == "cloud"
    # The first waits for documents that have its words; the second is there after they ended.
    for event in events[:2]:
        assert event["topics"][0]["words"] == given[0][:5]
        assert (event["topics"][0]["clients"], event["topics"][0]["occurrences"]) == ([], 0)
    assert events[2]["topics"][0]["clients"] == ["a", "b", "c"]
    assert events[2]["topics"][1]["occurrences"] < events[1]["topics"][1]["occurrences"]
    assert (model.info["ids"][:2], model.info["seeds"]) == ([0, 1], 2)
    assert final(model)[:2] == ["dance", "cloud"]


def test_a_stop_when_topics_are_less_coherent(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([0.5, 0.6, 0.4])
    monkeypatch.setattr(
        "fedtopics.methods.flda.method.coherence_of_topics", lambda *_: next(scores)
    )
    model, events = train_and_note(
        flda(stop="coherence", coherence="documents", max_rounds=9), stream(DRIFT)
    )
    assert [event["coherence"] for event in events.of("round")] == [0.5, 0.6, 0.4]
    (stopped,) = events.of("stopped")
    assert (stopped["round"], stopped["reason"]) == (
        3,
        "topics are less coherent than those of the previous round, which are kept",
    )
    before = train(flda(max_rounds=2, coherence="documents"), stream(DRIFT))
    assert same(model, before)
    assert (model.info["rounds"], model.info["ids"]) == (3, before.info["ids"])
    assert set(final(model)) == {"apple", "bread", "cloud"}


def with_canaries() -> dict[str, Corpus]:
    """Documents of which four in each of a's rounds have a word, fewer than its policy asks for."""
    corpora = stream(STEADY)
    texts = tokens_of(corpora["a"])
    for row, text in enumerate(texts):
        if row % SIZE < 4:
            text[:3] = [CANARY] * 3
    return corpora | {"a": Corpus.of(texts)}


def test_a_word_that_few_documents_have_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = overheard(monkeypatch).calls
    plan = flda(coherence="documents", stop="coherence", n_words=30)
    train(plan, with_canaries(), out=tmp_path / "run").save_pretrained(tmp_path / "model")
    assert {function for _, function, *_ in said} == FLDAClient.in_study(plan.method).keys()
    assert not any(CANARY in repr(call) for call in said)
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"apple1" in everything
    assert CANARY.encode() not in everything
    # It is the policy that holds it back.
    open_, _ = trained(plan, with_canaries(), policies=dict.fromkeys("abc", OPEN_POLICY))
    assert CANARY in open_.vocabulary.words


def client(
    corpus: Corpus, policy: Policy = OPEN_POLICY, name: str = "a", **given: Any
) -> FLDAClient:
    return client_of(flda(**given), ClientContext(name, corpus, policy))  # type: ignore[return-value]


def asked(half: FLDAClient, round_: int = 1, **other: Any) -> dict[str, Any]:
    """Ask for topics as the server does when it has none."""
    told: dict[str, Any] = {"ids": [], "seeds": {}, "first": [], **pack_topics([])}
    return half.local_topics(round=round_, **(told | other))


def test_a_topic_of_too_few_documents_stays_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["apple", "pear"]
    beta = np.array([[0.9, 0.1], [0.1, 0.9], [0.8, 0.2]])

    def sampled(*_: Any) -> Sampled:
        return Sampled(
            words, beta, np.repeat(range(3), [10, 9, 41]), np.array([100.0, 90.0, 410.0])
        )

    monkeypatch.setattr(client_module, "sample_topics", sampled)
    half = client(Corpus.of([words] * SIZE), Policy())
    guides = [{"fig": 1.0}, {"pear": 1.0}, {"apple": 1.0}]
    reply = asked(half, **{"ids": [5, 6, 7], "first": [7, 6, 5], **pack_topics(guides)})
    assert unpack_topics(reply) == [{"apple": 0.9}, {"apple": 0.8}]
    assert reply["seeds"].tolist() == [7, -1], "the last has no word that 5 has"
    assert reply["occurrences"].tolist() == [100.0, 410.0]
    assert reply["documents"] == SIZE


def test_a_client_without_enough_documents_says_no_more_than_that() -> None:
    few = client(Corpus.of(documents(ABC, 29, np.random.default_rng(0))), Policy(min_persons=30))
    reply = asked(few)
    assert reply["documents"] == 0
    assert reply["words"] == []
    assert not any(np.size(value) for name, value in reply.items() if name != "documents")
    few.adopt(THEMES["apple"], 1, 1.0)
    assert few.document_counts() == dict.fromkeys(COUNTED, 0)


def further(model: TopicModel) -> WarmStart:
    return WarmStart.of(model, "keep", adds_documents=True)


def test_one_more_round_of_new_documents() -> None:
    model, _ = trained(flda(), stream(STEADY))
    more, events = trained(
        flda(), stream([["apple", "bread", "dance"]], seed=1), start=further(model)
    )
    assert [event["round"] for event in events] == [4]
    assert themes(events[0]["vanished"]) == {"cloud"}
    assert events[0]["new"] == [3]
    before = dict(zip(final(model), model.info["ids"], strict=True))
    assert dict(zip(final(more), more.info["ids"], strict=True)) == {
        "apple": before["apple"],
        "bread": before["bread"],
        "dance": 3,
    }
    assert more.info["history"][:3] == model.info["history"]
    assert len(more.info["history"]) == more.info["rounds"] == 4
    assert more.info["seen"] == model.info["seen"] + 3 * SIZE
    assert more.info["next_id"] == 4
    again, events = trained(flda(), stream(STEADY, seed=2), start=further(more))
    assert [event["round"] for event in events] == [5]
    assert set(final(again)) >= {"apple", "bread", "cloud"}
    assert 4 in again.info["ids"], "what comes again is new"


def guides_of(sampled: Called) -> list[list[list[str]]]:
    """What each LDA is guided by: words, the largest first."""
    return [[list(guide) for guide in given[4]] for given, _ in sampled]


def test_topics_to_begin_with_guide_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = noted(monkeypatch, client_module, "sample_topics")
    words = [*THEMES["cloud"], *THEMES["apple"], "zebra"]
    beta = np.zeros((2, 25))
    beta[0, :12] = np.arange(12, 0, -1)
    beta[1, 12:24] = 1
    model, events = trained(flda(max_rounds=1, n_words=8), stream([ABC]), start=(beta, words))
    assert guides_of(sampled) == [[THEMES["cloud"][:8], THEMES["apple"][:8]]] * 3
    assert {theme(topic["words"]): topic["id"] for topic in events[0]["topics"]} == {
        "cloud": 0,
        "apple": 1,
        "bread": 2,
    }
    assert events[0]["new"] == [2]
    again, _ = trained(flda(max_rounds=1, n_words=8), stream([ABC]), start=model)
    assert set(final(again)) == set(final(model))
    assert again.info["rounds"] == 1


def test_each_client_is_guided_by_its_own_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = noted(monkeypatch, client_module, "sample_topics")
    trained(
        flda(max_rounds=2), stream({"a": [["apple", "bread"]] * 2, "b": [["bread", "cloud"]] * 2})
    )
    guided = [{theme(guide) for guide in guides} for guides in guides_of(sampled)]
    assert guided == [set(), set(), {"apple", "bread"}, {"bread", "cloud"}]


def test_a_saved_model_comes_back_to_the_bit(tmp_path: Path) -> None:
    corpora = stream(DRIFT)
    model, events = trained(flda(coherence="documents"), corpora)
    back = TopicModel.from_pretrained(model.save_pretrained(tmp_path))
    assert same(back, model)
    assert back.info == model.info
    documents_ = [*tokens_of(corpora["a"]), []]
    theta = model.transform(documents_)
    assert theta.shape == (3 * SIZE + 1, 3)
    assert back.transform(documents_).tobytes() == theta.tobytes()
    np.testing.assert_allclose(theta.sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(theta[-1], 1 / 3)
    for row, text in zip(theta[-21:-1], documents_[-21:-1], strict=True):
        assert final(model)[row.argmax()] == theme(text)
    info = back.info
    assert (info["method"], info["rounds"], info["seed"]) == ("flda", 3, 0)
    assert 0.1 <= info["threshold"] <= 0.9
    assert info["optimal"] == {name: [0, 1, 2] for name in "abc"}
    for event, told in zip(events, info["history"], strict=True):
        assert {name: event[name] for name in told} == told
    assert "- Method: flda, 3 rounds, seed 0" in (tmp_path / "README.md").read_text()
