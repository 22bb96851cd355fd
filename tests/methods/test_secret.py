"""What a client draws, it draws from the client's secret."""

import ast
import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtopics
from fedtopics import Study, TopicModel, train
from fedtopics.errors import RunError
from fedtopics.federation import simulation
from fedtopics.federation.door import Door
from fedtopics.federation.finished_model import finished
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.program import client_of, program_of
from fedtopics.federation.run_folder import RunFolder
from fedtopics.methods.core.plan import ClientContext, Secret
from fedtopics.methods.core.settings import filled
from tests.helpers.federation import ANY_WORDS, assert_same_bits, embedded, study, subjects
from tests.helpers.methods import CLUSTERS, METHODS


def test_it_is_hkdf_of_the_secret_by_purpose_and_numbers() -> None:
    """RFC 5869: extract without a salt, then the first block of expand."""
    key = bytes(range(32))
    info = json.dumps(["minibatch", 3, 2]).encode()
    extracted = hmac.digest(bytes(32), key, hashlib.sha256)
    expected = hmac.digest(extracted, info + b"\x01", hashlib.sha256)
    secret = Secret(key)
    assert secret.seed("minibatch", 3, 2) == int.from_bytes(expected[:8]) >> 1
    drawn = secret.rng("minibatch", 3, 2).integers(1 << 62, size=9)
    again = np.random.default_rng(int.from_bytes(expected)).integers(1 << 62, size=9)
    np.testing.assert_array_equal(drawn, again)


def test_values_stay() -> None:
    """Or simulations would not be repeatable."""
    secret = Secret.from_seed(0, "a")
    assert secret.seed("dropout", 1, 1) == 3015381207315351561
    assert secret.rng("epoch", 0).permutation(8).tolist() == [2, 7, 4, 1, 6, 5, 3, 0]


def test_every_purpose_number_client_and_seed_has_draws_of_its_own() -> None:
    secret = Secret.from_seed(0, "a")
    seeds = [
        secret.seed("epoch"),
        secret.seed("epoch", 0),
        secret.seed("epoch", 1),
        secret.seed("epoch", 1, 1),
        secret.seed("epoch", 11),
        secret.seed("noise", 1),
        Secret.from_seed(1, "a").seed("epoch", 1),
        Secret.from_seed(0, "b").seed("epoch", 1),
        Secret(bytes(32)).seed("epoch", 1),
    ]
    assert len(set(seeds)) == len(seeds)
    assert secret.seed("epoch", 1) == Secret.from_seed(0, "a").seed("epoch", 1)


def test_a_run_has_a_secret_of_its_own_unless_a_seed_says_it() -> None:
    secret = Secret(bytes(32))
    runs = [secret.of_run("beef"), secret.of_run("f00d")]
    assert len({secret.key, *(run.key for run in runs)}) == 3
    assert secret.of_run("beef") == runs[0]
    seeded = Secret.from_seed(0, "a")
    assert seeded.of_run("beef") is seeded


def test_it_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "north" / "secret"
    secret = Secret.keep(path)
    assert (len(secret.key), path.stat().st_mode & 0o777) == (32, 0o600)
    assert Secret.keep(path) == secret
    assert Secret.keep(tmp_path / "other") != secret
    assert not secret.seeded
    assert secret.key.hex() not in repr(secret) and repr(secret.key) not in repr(secret)
    path.write_bytes(b"short")
    with pytest.raises(RunError, match="does not contain a secret of 32 bytes; restore it"):
        Secret.keep(path)


def trained(**secrets: Secret) -> TopicModel:
    """The model of two clients, of which some have a secret of their own."""
    plan = study(max_rounds=5)
    corpora = subjects({"a": 60, "b": 60})
    doors = {}
    for name, corpus in corpora.items():
        half = client_of(plan, ClientContext(name, corpus, OPEN_POLICY, secret=secrets.get(name)))
        doors[name] = Door(name, half, OPEN_POLICY, Ledger("", ""))
    return finished(plan, None, program_of(plan).train(LocalClients(doors), RunFolder(None, "")))


def test_a_site_without_a_secret_draws_from_the_studys_seed_and_its_name() -> None:
    plan = study(max_rounds=5)
    simulated = train(
        plan, subjects({"a": 60, "b": 60}), policies=dict.fromkeys("ab", OPEN_POLICY), at_once=False
    )
    assert_same_bits(trained(), simulated)
    assert_same_bits(trained(a=Secret.from_seed(plan.seed, "a")), simulated)
    from_secret = trained(a=Secret(bytes(32)))
    assert not np.array_equal(from_secret.beta, simulated.beta)
    assert_same_bits(trained(a=Secret(bytes(32))), from_secret)


class SecondAttempts(LocalClients):
    """Every round is worked for a second time."""

    def _begin(self, attempt: int = 1) -> None:
        super()._begin(attempt)
        self._position = replace(self._position, attempt=2)


ANEW = {"gfedntm", "gfedntm, local steps", "lda", "fstc", "fsccl"}
"""Of which clients draw documents or noise in a round. The others sum over all of them."""


@pytest.mark.parametrize("case", [*METHODS, "flda", "k-fed"])
def test_another_attempt_has_draws_of_its_own(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But what all see one by one stays: two samples of the same documents would say more."""
    corpora = embedded(subjects(dict.fromkeys("abc", 60)))
    if case == "flda":
        pytest.importorskip("tomotopy")
    more: dict[str, Any] = {
        "flda": {"name": "flda", "n_components": 3, "max_rounds": 1, "min_new_documents": 10},
        "k-fed": CLUSTERS | {"name": "kmeans", "algorithm": "k-fed"},
    }
    method = {"name": "gfedntm"} | (METHODS.get(case) or more[case])
    method |= {"learning": "stochastic"} if case == "lda" else {}
    small = {"network": {"batch_size": 30}} if case == "fstc" else {"batch_size": 30}
    method = filled(method, small) if case in ANEW - {"fsccl"} else method
    plan = Study.make(method=method, vocabulary=ANY_WORDS)
    policies = dict.fromkeys("abc", OPEN_POLICY)
    first = train(plan, corpora, policies=policies)
    monkeypatch.setattr(simulation, "LocalClients", SecondAttempts)
    second, again = (train(plan, corpora, policies=policies) for _ in range(2))
    assert_same_bits(again, second)
    if case in ANEW:
        with pytest.raises(AssertionError):
            assert_same_bits(second, first)
    else:
        assert_same_bits(second, first)


HALVES = [
    path
    for pattern in ("*/client.py", "*/method.py", "*/minibatches.py", "fstc/training.py")
    for path in (Path(fedtopics.__file__).parent / "methods").glob(pattern)
    if path.name != "method.py" or not path.with_name("client.py").exists()
]
PUBLIC = {"projections", "noisy_word_products", "_new_trainer", "shorten"}
"""Directions and first weights, the same at all clients; which words of a text its views lack."""
OF_PROGRAMS = {"first_state", "leading_directions"}  # in a file with the client; first topics


def uses(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Names by which a seed or a generator is used, and the function that does."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                name = node.attr if isinstance(node, ast.Attribute) else ""
                if name in ("default_rng", "SeedSequence", "seed", "public_seed", "RandomState"):
                    value = ast.unparse(node)
                    if not value.endswith("secret.seed"):
                        yield function.name, value


def test_no_half_draws_from_anything_else() -> None:
    assert len(HALVES) > 10
    random_uses = {use for path in HALVES for use in uses(ast.parse(path.read_text("utf-8")))}
    assert {function for function, _ in random_uses} - PUBLIC - OF_PROGRAMS == {"__init__"}
    assert {use for function, use in random_uses if function == "__init__"} == {
        "plan.seed",
        "self.public_seed",
    }
