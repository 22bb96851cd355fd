"""The examples that write a run's events elsewhere, with stand-ins for the packages they need."""

import runpy
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NUMBERS = {"loss", "seconds"}
WORDS = [f"word{letter}" for letter in "abcdefghijklmnopqrst"]
STUDY = """
name = "letters"
[method]
name = "nmf"
n_components = 2
max_rounds = 3
tolerance = 0
coherence = "nothing"
[vocabulary]
min_persons_per_word = 1
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    rng = np.random.default_rng(0)
    clients = ""
    for name in ("north", "south"):
        rows = [" ".join(rng.choice(WORDS, 4)) for _ in range(300)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text", *rows]))
        clients += f'[clients.{name}]\ndata = "{name}.csv"\n'
    (tmp_path / "study.toml").write_text(STUDY + clients)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["example", "study.toml"])
    return "study.toml"


def installed(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """Let a module be there, whether its package is installed or not."""
    module = ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("study")
def test_tensorboard_gets_each_rounds_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, float, int]] = []

    class Writer(nullcontext[Any]):
        def __init__(self, folder: str) -> None:
            super().__init__(self)
            assert folder == "runs/tensorboard"

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

    installed(monkeypatch, "torch.utils.tensorboard", SummaryWriter=Writer)
    runpy.run_path(str(EXAMPLES / "tensorboard_events.py"))
    assert {(name, step) for name, _, step in written} == {
        (n, s) for n in NUMBERS for s in (1, 2, 3)
    }
    losses = [value for name, value, _ in written if name == "loss"]
    assert losses == sorted(losses, reverse=True), "of a factorisation, which only falls"


def test_mlflow_gets_settings_and_each_rounds_numbers(
    study: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: list[dict[str, Any]] = []
    written: list[tuple[set[str], int]] = []
    names: list[str] = []

    def start_run(run_name: str) -> nullcontext[None]:
        names.append(run_name)
        return nullcontext()

    installed(
        monkeypatch,
        "mlflow",
        start_run=start_run,
        log_params=settings.append,
        log_metrics=lambda numbers, step: written.append(({*numbers}, step)),
    )
    runpy.run_path(str(EXAMPLES / "mlflow_events.py"))
    assert names == [study]
    assert settings[0]["method.n_components"] == 2
    assert written == [(NUMBERS, step) for step in (1, 2, 3)]
