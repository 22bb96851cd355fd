"""Secure aggregation of two clients: each can compute the other's update, so both owners decide."""

from pathlib import Path

import numpy as np
import pytest

from fedtopics import Policy, Study, train
from fedtopics.errors import PolicyError
from fedtopics.federation.join import join
from fedtopics.federation.policy import OPEN_POLICY
from tests.helpers.federation import subjects
from tests.helpers.grpc_federation import federated, keys_of, part_of, signed

CORPORA = subjects({"north": 40, "south": 50})
PLAN = Study.make(
    method={"name": "lda", "n_components": 2, "max_rounds": 2}, aggregation="secure",
    vocabulary={"min_document_frequency": 1},
).with_clients(CORPORA)  # fmt: skip


def test_two_whose_policies_accept_it_have_the_model_of_one_process(tmp_path: Path) -> None:
    two = Policy(min_document_frequency=1, min_clients_in_sum=2)
    model = federated(PLAN, CORPORA, tmp_path, two).model
    here = train(PLAN, CORPORA, policies=dict.fromkeys(CORPORA, OPEN_POLICY), at_once=False)
    np.testing.assert_allclose(model.beta, here.beta, rtol=1e-4, atol=1e-7)


def test_a_policy_that_does_not_say_so_refuses(tmp_path: Path) -> None:
    keys = keys_of(tmp_path / "keys", *CORPORA, "server")
    part, _ = part_of(keys["north"], CORPORA["north"], tmp_path / "north", Policy())
    with pytest.raises(PolicyError, match=r"at least 3 clients, but a round of the study has 2"):
        join(part, signed(PLAN, keys), dry_run=True)
