"""How many threads compute: as few as a study needs, as many as the user says."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from fedtopics import Corpus, NeuralLDA, ProdLDA
from fedtopics.threads import available, chosen_threads, small_products


@pytest.mark.parametrize(
    ("given", "number"), [("3", 3), ("4,2", 4), (" 2 ", 2), ("", None), ("0", None), ("all", None)]
)
def test_what_users_set(given: str, number: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert chosen_threads() == number
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 2, 5, 6, 9}, raising=False)
    assert available() == (number or 5)


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(("given", "number"), [(None, 1), ("2", 2)])
def test_small_products(given: str | None, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    with pytest.raises(ZeroDivisionError), small_products():
        assert torch.get_num_threads() == number
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_two_threads_leave_the_number_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    one, other = small_products(), small_products()
    one.__enter__()
    other.__enter__()
    assert torch.get_num_threads() == 1
    one.__exit__(None, None, None)
    other.__exit__(None, None, None)
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_a_machine_with_more_threads_trains_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    rng = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(400)])
    corpus = Corpus.of([words[rng.integers(0, 400, 60)].tolist() for _ in range(300)])
    weights = []
    for threads in (3, 1):
        torch.set_num_threads(threads)
        model = ProdLDA(8, max_rounds=3, batch_size=256).fit(corpus).model_
        weights.append({name: weight.tolist() for name, weight in model.weights.items()})
    assert weights[0] == weights[1]


@pytest.mark.usefixtures("three_threads")
def test_topics_of_documents_are_found_with_the_threads_of_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    model = NeuralLDA(2, max_rounds=1).fit(["oak elm", "ketch sloop"] * 20).model_
    seen = []
    infer = type(model.inference).infer

    def noted(*arguments: Any) -> Any:
        seen.append(torch.get_num_threads())
        return infer(*arguments)

    monkeypatch.setattr(type(model.inference), "infer", noted)
    model.transform(["oak", "ketch elm"])
    assert seen == [1] and torch.get_num_threads() == 3


def product() -> tuple[int, float]:
    """Compute what one thread would share with others; return how many there are."""
    with small_products():
        numbers = torch.ones(512, 512)
        return torch.get_num_threads(), float(torch.sigmoid(numbers @ numbers).sum())


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork")
def test_a_forked_process_does_not_wait_for_threads_of_its_parent() -> None:
    """In a process of its own, as a fork of this one could wait for other tests' threads."""
    code = """
import multiprocessing, torch
from tests.test_threads import product
assert product() == (3, 512**2)
with multiprocessing.get_context("fork").Pool(1) as pool:
    assert pool.apply_async(torch.get_num_threads).get(60) == 1
    assert pool.apply_async(product).get(60) == (1, 512**2)
"""
    environment = os.environ | {"OMP_NUM_THREADS": "3"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)


@pytest.mark.parametrize(("given", "policy"), [(None, "passive"), ("active", "active")])
def test_threads_wait_asleep(given: str | None, policy: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": given} if given else {}
    look = "import os, sys, fedtopics; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", look], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [policy, "False"]
