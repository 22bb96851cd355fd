"""The documentation of installed packages as a corpus."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedtopics.datasets import packages
from fedtopics.datasets.packages import _read_package, package_documentation
from fedtopics.errors import DataError
from fedtopics.text.corpus import Corpus


@pytest.fixture(scope="module")
def clients() -> dict[str, Corpus]:
    return package_documentation(2)


def test_one_package_a_client(clients: dict[str, Corpus]) -> None:
    assert list(clients) == ["networkx", "scipy"]
    assert all(len(corpus) > 1000 for corpus in clients.values())


@pytest.mark.parametrize("name", ["networkx", "scipy"])
def test_documents_are_prose_of_twenty_words_with_qualified_names(
    clients: dict[str, Corpus], name: str
) -> None:
    texts = clients[name].documents.to_pylist()
    assert len(set(texts)) == len(texts)
    assert min(len(re.findall(r"\w+", text)) for text in texts) >= 20
    assert not [text for text in texts if ">>>" in text]
    ids = clients[name].ids.to_pylist()
    assert len(set(ids)) >= 0.99 * len(ids)  # a property and its setter share a name
    assert not [one for one in ids if "test" in one.split(".")]
    if name == "networkx":
        assert "algorithms.centrality.betweenness.betweenness_centrality" in ids


@pytest.mark.parametrize("n", [1, 8])
def test_number_of_clients(n: int) -> None:
    with pytest.raises(DataError, match=f"The demo allows 2 to 7 clients, not {n}"):
        package_documentation(n)


def test_what_is_missing_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"networkx", "sympy", "torch"}
    monkeypatch.setattr(packages, "find_spec", lambda n: None if n in missing else find_spec(n))
    monkeypatch.setattr(packages, "_read_package", lambda name: name)
    names = ["scipy", "sklearn", "standard-library", "numpy", "numba", "pydantic", "grpc"]
    assert list(package_documentation(7)) == names


def test_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = " ".join(f"word{'abcdefghijklmnopqrst'[i]}" for i in range(20))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "b.py").write_text(f'"""{words} skipped"""')
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "a.py").write_text(
        f'"""{words} code_like f(x)\n\n>>> {words}\n"""\n'
        'class C:\n    """Too short."""\n'
        f'    def f(self):\n        """{words} of f"""\n'
    )
    monkeypatch.setattr("fedtopics.datasets.packages._root", lambda name: tmp_path)
    corpus = _read_package("any")
    assert dict(zip(corpus.ids.to_pylist(), corpus.documents.to_pylist(), strict=True)) == {
        "a": words,
        "a.C.f": f"{words} of f",
    }
