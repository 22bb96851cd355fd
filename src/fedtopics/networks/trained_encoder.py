"""Trained parts for short texts: an adapter of embeddings with a head, and the encoder itself."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call

from fedtopics.errors import StudyError
from fedtopics.networks.base import Tensors, tensor_shapes
from fedtopics.text.embeddings import SentenceEncoder, Vectors, fast_dtype


class Adapter:
    """An adapter with a hidden layer, initially the identity, and a head that scores clusters."""

    def __init__(self, dimension: int, hidden: int, n_outputs: int) -> None:
        self.shapes = {
            "adapter_in": (dimension, hidden),
            "adapter_bias": (hidden,),
            "adapter_out": (hidden, dimension),
            "head": (n_outputs, dimension),
            "head_bias": (n_outputs,),
        }

    def initial_weights(self, seed: int, dtype: torch.dtype = torch.float32) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        weights = {name: torch.zeros(shape, dtype=dtype) for name, shape in self.shapes.items()}
        for name, inputs in (("adapter_in", 0), ("head", 1)):
            bound = 1 / math.sqrt(self.shapes[name][inputs])
            weights[name].uniform_(-bound, bound, generator=generator)
        return weights


def represent(weights: Tensors, points: Tensor) -> Tensor:
    hidden = torch.relu(points @ weights["adapter_in"] + weights["adapter_bias"])
    return points + hidden @ weights["adapter_out"]


def score(weights: Tensors, represented: Tensor) -> Tensor:
    return represented @ weights["head"].T + weights["head_bias"]


BATCH = 256  # number of texts that are embedded at a time
_LOCK = Lock()  # a network has borrowed weights during a call, and torch has one dropout

Tokens = dict[str, Tensor]  # a tokenizer's output for texts, by name; one row per text


class EncoderNetwork:
    """A sentence-transformers model, by name or folder, as a function of its weights."""

    def __init__(self, model: str, max_length: int) -> None:
        with _seeded(torch.device("cpu"), 0):  # weights that are not in its files are drawn
            encoder = SentenceEncoder(model).loaded.float()
        self._tokenizer: Any = getattr(encoder, "tokenizer", None)
        if not callable(self._tokenizer):
            raise StudyError(
                f"The model {model!r} cannot be trained: it is not a transformer; set fine_tune = "
                "false, or choose another model."
            )
        self._prompt = encoder.prompts.get(encoder.default_prompt_name) or ""
        self._length = min(max_length, encoder.max_seq_length or max_length)
        self._network = encoder
        weights = dict(encoder.named_parameters())
        # Releases of sentence-transformers differ in this part of a name.
        self._names = {f"encoder.{n}".replace(".auto_model.", ".model."): n for n in weights}
        # The model's defaults: float32, on a GPU if there is one.
        self.first: Tensors = {name: weights[full].detach() for name, full in self._names.items()}
        self.shapes = tensor_shapes(self.first)
        self.device = next(iter(self.first.values())).device
        self.dimension = self.embed(self.first, self.tokens(["a"])).shape[1]

    def tokens(self, texts: Sequence[str]) -> Tokens:
        return dict(
            self._tokenizer(
                [self._prompt + text for text in texts],
                padding=True,
                truncation=True,
                max_length=self._length,
                return_tensors="pt",
            )
        )

    def __call__(self, weights: Tensors, tokens: Tokens, seed: int | None = None) -> Tensor:
        """Embed texts as one batch, float32 (n_texts, dimension); dropout needs a seed."""
        parameters = {self._names[name]: weight for name, weight in weights.items()}
        features = {name: column.to(self.device) for name, column in tokens.items()}
        with _LOCK, _seeded(self.device, seed), _fast(self.device):
            self._network.train(seed is not None)
            outputs = functional_call(self._network, parameters, (features,))
        return cast("Tensor", outputs["sentence_embedding"].float())

    @torch.no_grad()
    def embed(self, weights: Tensors, tokens: Tokens) -> Tensor:
        """Embed any number of texts without gradient or dropout, shape (n_texts, dimension)."""
        rows = np.arange(len(tokens["input_ids"]))
        parts = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        return torch.cat([self(weights, take_encoded(tokens, part)) for part in parts])


# The clients of a simulation share one, except for its weights.
encoder_network = lru_cache(maxsize=1)(EncoderNetwork)


@dataclass(eq=False)
class TunedEncoder:
    """An `Encoder` with trained weights; the first call loads tokenizer and architecture."""

    _model: str
    _length: int
    _weights: Tensors

    @cached_property
    def fingerprint(self) -> str:
        return f"{digest_of_encoder(self._weights)} {self._length}"

    def __call__(self, texts: list[str]) -> Vectors:
        """Embed texts; refuse a model whose weights have other names or shapes than ours."""
        network, weights = self._ready
        return cast("Vectors", network.embed(weights, network.tokens(texts)).cpu().numpy())

    @cached_property
    def _ready(self) -> tuple[EncoderNetwork, Tensors]:
        network = encoder_network(self._model, self._length)
        if network.shapes != tensor_shapes(self._weights):
            raise StudyError(
                f"The model {self._model!r} here is not the one that was trained: its weights have "
                "other names or shapes; give the model of that name, or its folder."
            )
        return network, {name: weight.to(network.device) for name, weight in self._weights.items()}


def take_encoded(tokens: Tokens, rows: NDArray[np.int64]) -> Tokens:
    """Return the tokens of some texts, without padding that they do not need."""
    index = torch.from_numpy(rows)
    taken = {name: column[index] for name, column in tokens.items()}
    used = taken["attention_mask"].any(0)
    return {name: column[:, used] for name, column in taken.items()}


def digest_of_encoder(weights: Tensors) -> str:
    content = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        content.update(f"{name} {tuple(weight.shape)}\n".encode())
        content.update(weight.detach().cpu().numpy().tobytes())
    return content.hexdigest()


@contextmanager
def _seeded(device: torch.device, seed: int | None) -> Iterator[None]:
    """Let torch draw on a device from a seed, and restore its random state afterwards."""
    if seed is None:
        yield
        return
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if on_gpu else []):
        source = torch.cuda.default_generators[device.index] if on_gpu else torch.default_generator
        source.manual_seed(seed)
        yield


def _fast(device: torch.device) -> torch.autocast:
    """Multiply matrices in bfloat16 if the device is faster at it; weights stay float32."""
    is_faster = (
        torch.cuda.is_bf16_supported(including_emulation=False)
        if device.type == "cuda"
        else fast_dtype() is torch.bfloat16
    )
    return torch.autocast(device.type, torch.bfloat16, enabled=is_faster)
