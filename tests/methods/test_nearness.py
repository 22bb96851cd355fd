"""Nearness at the end of a training: sums over enough persons, of which only scores stay."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedtopics import Policy, train
from fedtopics.methods.core.nearness import NearnessSums, enough_in_level
from fedtopics.model.nearness import LEVELS, joined_levels
from fedtopics.report.findings import scores_of
from tests.helpers.clusters import (
    CLUSTERS,
    DIMENSION,
    blobs,
    half,
    labels_of,
    planned,
    spread,
    trained,
)

PLAN = planned("kmeans", coherence="documents", max_rounds=5)
CORPUS = blobs(400)
EMBEDDINGS = np.asarray(CORPUS.embeddings)
CENTRES = np.stack([EMBEDDINGS[labels_of(CORPUS) == k].mean(0) for k in range(CLUSTERS)])
MODEL: dict[str, Any] = {"weights": {"origin": np.zeros(DIMENSION), "centres": CENTRES}}
ORIGIN = np.full(DIMENSION, 0.1)


def sums_of(client: Any) -> Iterator[dict[str, Any]]:
    """What a client sends: all arrays are sums over documents."""
    yield client.execute("embedding_sum", {"vocabulary": client._fingerprint})
    asked = {"vocabulary": client._fingerprint, "origin": ORIGIN, **MODEL}
    yield client.execute("centre_sums", asked)
    yield client.execute("nearness_sums", asked | {"centres": CENTRES})


def test_sums_of_clients_add_up_to_those_of_their_documents() -> None:
    corpora = [CORPUS.take(np.arange(150)), CORPUS.take(np.arange(150, 400))]
    parts = [half(PLAN, corpus, name=name) for name, corpus in zip("ab", corpora, strict=True)]
    whole = half(PLAN, CORPUS)
    whole.part(NearnessSums).parts = tuple(
        np.concatenate([one, 150 + other])
        for one, other in zip(*(client.part(NearnessSums).parts for client in parts), strict=True)
    )
    first, second, pooled = (list(sums_of(client)) for client in (*parts, whole))
    for one, other, both in zip(first, second, pooled, strict=True):
        for name, total in both.items():
            # A topic that has two levels at one client only is left out at the other.
            np.testing.assert_allclose(np.add(one[name], other[name]), total, rtol=1e-5, atol=1e-5)
    assert pooled[2]["documents"] == 80
    assert pooled[2]["documents_in"].sum() == 80 * CLUSTERS


def test_few_persons_are_in_no_sum() -> None:
    few = half(PLAN, CORPUS.take(np.arange(49)), Policy(min_persons=10))
    assert [len(rows) for rows in few.part(NearnessSums).parts] == [49, 0]
    _, centres, levels = sums_of(half(PLAN, CORPUS, Policy(min_persons=10)))
    counts = levels["documents_in"].reshape(LEVELS, CLUSTERS)
    assert set(counts.sum(0)) <= {0, 80}
    assert counts[counts > 0].min() >= 10
    assert centres["sums"].any()
    # Each cluster has enough persons, but too few of them are held out: a sum of all documents,
    # which k-means sends, less that of the others would be of these few.
    of_120 = half(PLAN, CORPUS.take(np.arange(120)), Policy(min_persons=10))
    assert len(of_120.part(NearnessSums).parts[1]) == 24
    assert not list(sums_of(of_120))[1]["sums"].any()


def test_an_empty_level_has_nobody_to_hide_one_person_among() -> None:
    persons = np.array([64.0, 0, 1, 0, 0, 0, 15])
    enough = enough_in_level(squares=persons, fourths=persons, least=10)
    sums = np.repeat(persons[None, :, None], 3, axis=0)
    assert joined_levels(sums, enough[:, None])[0, :, 0].tolist() == [65, 0, 0, 0, 0, 0, 15]


def test_of_two_topics_only_one_has_levels() -> None:
    """Those of the other mirror them, so that a few persons would be between two totals."""
    two = {"weights": {"origin": np.zeros(DIMENSION), "centres": CENTRES[:2]}}
    client = half(planned("kmeans", coherence="documents", n_components=2), CORPUS)
    asked = {"vocabulary": client._fingerprint, "origin": ORIGIN, "centres": CENTRES[:2], **two}
    counts = client.execute("nearness_sums", asked)["documents_in"].reshape(LEVELS, 2)
    assert counts.sum(0).tolist() == [80, 0]


def test_a_model_has_scores_and_no_centre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    sent = NearnessSums.nearness_sums

    def noted(self: Any, /, origin: Any, centres: Any, **others: Any) -> Any:
        seen.extend([origin, *centres])
        return sent(self, origin=origin, centres=centres, **others)

    vars(noted)["published"] = vars(sent)["published"]
    monkeypatch.setattr(NearnessSums, "nearness_sums", noted)
    corpora = spread(CORPUS, 3)
    model = trained(planned("mixture", coherence="documents", max_rounds=5), corpora)
    nearness = model.info["nearness"]
    assert [*nearness] == ["scores", "mean", "interval", "encoder", "documents"]
    assert (min(nearness["scores"]) > 0.3, nearness["documents"]) == (True, 80)
    model.save_pretrained(tmp_path / "model")
    arrays = [a for a in load_file(tmp_path / "model/model.safetensors").values() if a.ndim]
    rows = [row for a in arrays if a.shape[-1] == DIMENSION for row in a.reshape(-1, DIMENSION)]
    assert rows and seen
    assert min(np.abs(row - hidden).max() for row in rows for hidden in seen) > 1e-3
    assert "nearness" not in trained(planned("mixture"), corpora).info, 'coherence = "nothing"'


def test_with_secure_aggregation_persons_of_all_clients_count() -> None:
    corpora = spread(CORPUS, 4)
    policies = dict.fromkeys(corpora, Policy(min_persons_per_word=1, min_clients_per_group=3))
    plan = planned("mixture", coherence="documents", max_rounds=5)
    assert "nearness" not in train(plan, corpora, policies=policies).info, "each has four persons"
    secure = plan.model_copy(update={"aggregation": "secure"})
    model = train(secure, corpora, policies=policies)
    assert min(model.info["nearness"]["scores"]) > 0.3
    first = scores_of(model)[0]
    assert (first["name"], first["value"]) == (
        "nearness of documents",
        model.info["nearness"]["mean"],
    )
    assert "over 5 of 5 topics, from 80 documents" in first["meaning"]
    assert first["meaning"].endswith("trained on the same encoder, which favours it")
