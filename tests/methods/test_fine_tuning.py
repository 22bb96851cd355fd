"""FSTC that trains its encoder as well, on an encoder small enough to be made here."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from fedtopics import Corpus, Study, TopicModel, train
from fedtopics.errors import StudyError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.inference.clusters import centred
from fedtopics.methods.core.plan import Secret
from fedtopics.methods.core.settings import filled
from fedtopics.methods.fstc.settings import FSTCSettings
from fedtopics.methods.fstc.training import EncodedInputs, EncoderTrainer
from fedtopics.networks.trained_encoder import (
    Adapter,
    EncoderNetwork,
    encoder_network,
    represent,
    score,
)
from fedtopics.text.embeddings import SentenceEncoder
from tests.helpers.bent import Reply, bend_replies
from tests.helpers.federation import ANY_WORDS, train_until_killed

transformers = pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")

DIMENSION = 24
KINDS = ("apple", "bread", "cloud")
WORDS = [f"{kind}{i}" for kind in KINDS for i in range(8)]


def make_encoder(folder: Path, seed: int = 0) -> Path:
    """Write a small transformer that takes words of a kind to be a little alike."""
    import tokenizers

    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, special[1]))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), special, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **names).save_pretrained(folder)
    shape = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=DIMENSION,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        initializer_range=0.3,
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = transformers.BertModel(shape)
        kinds = torch.randn(len(KINDS), DIMENSION)
    with torch.no_grad():
        table = model.embeddings.word_embeddings.weight
        table[len(special) :] += 0.3 * kinds.repeat_interleave(len(WORDS) // len(KINDS), 0)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def _as_on_any_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTOPICS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("fedtopics.networks.trained_encoder.fast_dtype", lambda: torch.float32)


@pytest.fixture
def network(folder: Path) -> EncoderNetwork:
    return encoder_network(str(folder), 32)


def texts_of(n: int, seed: int) -> list[str]:
    """Texts of three to six words of one kind each, and now and then of another."""
    rng = np.random.default_rng(seed)

    def word(kind: str) -> str:
        return f"{kind if rng.random() < 0.8 else rng.choice(KINDS)}{rng.integers(8)}"

    return [" ".join(word(KINDS[i % 3]) for _ in range(rng.integers(3, 7))) for i in range(n)]


CLIENTS = {"north": texts_of(36, 1), "south": texts_of(24, 2), "west": texts_of(30, 3)}
OTHER = "encoders of {} have weights other than those of most clients"


def planned(folder: Path, **method: Any) -> Study:
    small: dict[str, Any] = {
        "name": "fstc",
        "n_components": 3,
        "coherence": "nothing",
        "fine_tune": True,
        "embedding": {"model": str(folder), "dimension": DIMENSION},
        "network": {"learning_rate": 0.01, "local_steps": 8, "batch_size": 16, "hidden": 8},
        "encoder_learning_rate": 1e-3,
        "max_rounds": 3,
        "transports": 4,
        "start": {"tries": 2},
    }
    return Study.make(
        method=filled(method, small), vocabulary={**ANY_WORDS, "max_document_share": 1.0}
    )


def trained(study: Study, corpora: Mapping[str, Any] = CLIENTS, **how: Any) -> TopicModel:
    return train(study, corpora, policies=dict.fromkeys(corpora, OPEN_POLICY), **how)


def encoder_of(model: TopicModel) -> dict[str, torch.Tensor]:
    named = {n: w for n, w in model.weights.items() if n.startswith("encoder.")}
    return {name: torch.from_numpy(weight) for name, weight in named.items()}


class Run:
    """One training with a folder, which several tests look at."""

    def __init__(self, folder: Path, out: Path) -> None:
        self.out = out
        self.model = trained(planned(folder), out=out)

    def states_of(self, client: str, round_: int = 3) -> dict[str, torch.Tensor]:
        (file,) = (self.out / "clients" / client).glob(f"fstc-*-{round_:05d}.safetensors")
        return load_file(file)


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDTOPICS_CACHE", "off")
        patch.setattr("fedtopics.networks.trained_encoder.fast_dtype", lambda: torch.float32)
        yield Run(folder, tmp_path_factory.mktemp("run"))


def test_with_its_own_weights_it_is_the_model(
    folder: Path, network: EncoderNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some processors embed in bfloat16, which has three digits.
    monkeypatch.setattr("fedtopics.text.embeddings.fast_dtype", lambda: torch.float32)
    texts = texts_of(300, 4)  # more than are embedded at a time
    np.testing.assert_allclose(
        network.embed(network.first, network.tokens(texts)).numpy(),
        SentenceEncoder(str(folder))(texts),
        atol=1e-5,
    )
    assert network.dimension == DIMENSION


def by_hand(folder: Path, texts: list[str], seed: int, origin: NDArray[Any]) -> Any:
    """The encoder as transformers has it, and the points of texts in one step of training."""
    encoder = transformers.BertModel.from_pretrained(folder, local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    encoder.train()
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        hidden = encoder(**tokens).last_hidden_state
    mask = tokens["attention_mask"][..., None]
    mean = (hidden * mask).sum(1) / mask.sum(1)
    unit = mean / mean.norm(dim=1, keepdim=True)
    moved = unit - torch.from_numpy(origin).float()
    return encoder, moved / moved.norm(dim=1, keepdim=True)


def test_a_step_on_views_embeds_them_instead(folder: Path, network: EncoderNetwork) -> None:
    texts = CLIENTS["south"]
    views = [CLIENTS["north"][:24], CLIENTS["west"][:24]]
    origin = np.full(DIMENSION, 0.1)
    secret = Secret(b"5" * 32)
    inputs = EncodedInputs(
        network, network.tokens([*texts, *views[0], *views[1]]), origin, secret, n_views=2
    )
    rows = np.array([3, 8])
    seen = inputs(rows, (7, 1))
    _, points = by_hand(
        folder, [view[row] for view in views for row in rows], secret.seed("dropout", 7, 1), origin
    )
    torch.testing.assert_close(seen, points, atol=1e-5, rtol=0)
    assert (len(inputs), len(inputs(rows))) == (24, 2)


def test_a_step_is_that_of_plain_torch(folder: Path, network: EncoderNetwork) -> None:
    texts = CLIENTS["south"]
    settings = FSTCSettings(
        name="fstc",
        n_components=3,
        fine_tune=True,
        alignment=1.0,
        warm_up=0.5,
        network={"local_steps": 1, "batch_size": 24, "hidden": 8, "learning_rate": 0.01},
        encoder_learning_rate=0.001,
    )
    rng = np.random.default_rng(0)
    origin = rng.normal(0, 0.1, DIMENSION)
    centres = rng.normal(size=(3, DIMENSION))
    labels = np.eye(3)[np.arange(24) % 3].astype(np.float32)
    first = Adapter(DIMENSION, 8, 3).initial_weights(0)
    secret = Secret(b"5" * 32)
    inputs = EncodedInputs(network, network.tokens(texts), origin, secret)
    weights = {name: w.clone() for name, w in first.items()}
    trainer = EncoderTrainer(
        settings=settings, inputs=inputs, weights=weights, labels=labels, secret=secret
    )
    loss = trainer.train(1, centres, present=np.ones(3, bool), masses=np.ones(3))

    training = secret.rng("validation").permutation(24)
    order = training  # a minibatch of all documents is not drawn
    encoder, points = by_hand(
        folder, [texts[i] for i in order], secret.seed("dropout", 0, 1), origin
    )
    head = {name: weight.clone().requires_grad_() for name, weight in first.items()}
    represented = represent(head, points)
    targets = torch.from_numpy(labels[order])
    means = torch.stack([represented[targets.argmax(1) == k].mean(0) for k in range(3)])
    error = (targets - score(head, represented)).square().sum(1).mean()
    expected = error + (means - torch.from_numpy(centres).float()).square().sum()
    optimizer = torch.optim.Adam(
        [{"params": head.values(), "lr": 0.01}, {"params": encoder.parameters(), "lr": 0.001}]
    )
    expected.backward()
    optimizer.step()

    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
    for name, weight in head.items():
        torch.testing.assert_close(trainer.weights[name], weight, atol=1e-5, rtol=0)
    for name, weight in encoder.named_parameters():
        after, before = (w[f"encoder.0.model.{name}"] for w in (trainer.weights, network.first))
        if weight.grad is None:  # of the pooler, which nobody asks
            assert torch.equal(after, before)
            continue
        clear = weight.grad.abs() > 1e-5  # Adam makes a whole step of rounding errors as well
        torch.testing.assert_close(after[clear], weight[clear], atol=1e-5, rtol=0)
        assert float((after - before).detach().abs().max()) < 0.00101
    assert torch.equal(network.first["encoder.0.model.embeddings.LayerNorm.bias"], torch.zeros(24))


def test_the_model_has_the_encoders_weighted_mean(run: Run, network: EncoderNetwork) -> None:
    states = {name: run.states_of(name) for name in CLIENTS}
    encoder = encoder_of(run.model)
    assert encoder.keys() == network.first.keys()
    for name, weight in encoder.items():
        sent = [states[c][f"weights/{name}"].double() * len(t) for c, t in CLIENTS.items()]
        total = torch.stack([part.float().double() for part in sent]).sum(0).float()
        assert torch.equal(weight, total / sum(map(len, CLIENTS.values())))
        assert weight.dtype == torch.float32
        moved = (weight - network.first[name]).abs()
        if ".pooler." in name:  # it is not trained, but a mean of its is rounded
            assert (moved <= 1e-6 * network.first[name].abs()).all()
        else:
            assert float(moved.max()) > 1e-4


def test_the_trained_encoder_embeds_new_texts(folder: Path, run: Run) -> None:
    texts = CLIENTS["west"]
    frozen = SentenceEncoder(str(folder))(texts)
    embeddings: Any = run.model.embedded(Corpus.of(texts)).embeddings
    assert np.abs(embeddings - frozen / np.linalg.norm(frozen, axis=1, keepdims=True)).max() > 1e-3
    arrays = run.model.weights
    points = centred(embeddings, arrays["origin"])
    ((_, theta),) = run.model.inference.memberships(arrays, points)  # type: ignore[attr-defined]
    np.testing.assert_allclose(run.model.transform(texts), theta, atol=1e-6)


def test_fifty_steps_of_the_papers_preset_and_again(folder: Path, tmp_path: Path) -> None:
    """The published training from the first transport on, with views, but fewer steps."""
    steps = {"local_steps": 10, "batch_size": 16, "hidden": 8, "learning_rate": 0.01}
    plan = planned(folder, preset="paper", network=steps, max_rounds=5)
    assert (plan.method.warm_up, plan.method.network.n_views) == (0.0, 2)
    train_until_killed(2, plan, run=trained, out=tmp_path / "run")
    model = trained(plan, out=tmp_path / "run", resume=True)
    first = encoder_network(str(folder), 32).first
    moved = {name: float((w - first[name]).norm()) for name, w in encoder_of(model).items()}
    assert all(np.isfinite(list(moved.values())))
    assert max(moved.values()) > 0
    once = trained(plan)
    assert all(np.array_equal(once.weights[name], w) for name, w in model.weights.items())


def test_a_model_of_another_dimension_is_refused(folder: Path) -> None:
    corpus = Corpus.of(CLIENTS["south"]).with_embeddings(np.eye(24, 16))
    study = planned(folder, embedding={"model": str(folder), "dimension": 16})
    with pytest.raises(StudyError, match="of 24 dimensions, but the study requires 16"):
        trained(study, {"north": corpus})


def test_all_clients_begin_with_one_encoder(folder: Path, tmp_path: Path) -> None:
    other = make_encoder(tmp_path / folder.name, seed=1)
    clients = {name: {"embedding_model": str(folder)} for name in CLIENTS}
    clients["south"]["embedding_model"] = str(other)
    study = planned(folder)
    study = Study.make(method=study.method, vocabulary=study.vocabulary, clients=clients)
    with pytest.raises(StudyError, match=OTHER.format("south")):
        trained(study)


@pytest.mark.parametrize("client", ["north", "south"])
def test_who_says_other_shapes_is_named(
    client: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the first client were all others', whatever it said."""

    def bend(function: str, reply: Reply) -> Reply:
        return reply | {"shapes": reply["shapes"] + 1000} if function == "encoder_shapes" else reply

    bend_replies(monkeypatch, client, bend)
    with pytest.raises(StudyError, match=OTHER.format(client)):
        trained(planned(folder))
