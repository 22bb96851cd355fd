"""Methods by name: what a study, a policy, a command, a report and an estimator read of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fedtopics.extras import Registry

if TYPE_CHECKING:  # the command line names the methods without what they load
    from numpy.typing import NDArray

    from fedtopics.inference import Inference
    from fedtopics.methods.core.client import TopicClient
    from fedtopics.methods.core.settings import TopicSettings
    from fedtopics.methods.core.training import Trainer


@dataclass(frozen=True)
class Exchange:
    """A function of a client that a study calls: how often, and what then leaves."""

    function: str
    often: str
    leaves: str
    seen_by_all: bool  # each reply by itself


@dataclass(frozen=True)
class Method:
    """A federated method, as the other packages see it."""

    name: str  # in a study's ``[method]``
    title: str  # for people
    settings: type[TopicSettings]
    program: Callable[[Any], Trainer]  # of a plan
    client: type[TopicClient[Any]]
    version: int = 1  # of what the client's functions take, return and compute
    shows: Literal["topics", "clusters"] = "topics"
    starts_from_models: bool = False  # or from topics
    takes_new_documents: bool = False  # of clients, while it runs
    inferences: Sequence[type[Inference]] = ()  # besides networks, of its models

    @property
    def topics_of(self) -> Callable[[Any, int, Mapping[str, NDArray[Any]]], Any] | None:
        """What reads the topics out of a saved state, for who follows a run; None if nothing can.

        A static method of the program takes settings, the number of agreed words, and what its
        `save` returned. It returns what is in proportion to p(word | topic), (n_topics, n_words).
        """
        return getattr(self.program, "topics_of", None)


def exchanges_of(client: type[TopicClient[Any]], settings: TopicSettings) -> list[Exchange]:
    """Return what a study with these settings asks of clients of a kind."""
    about = {name: vars(function) for name, function in client.functions().items()}
    return [
        Exchange(name, often, about[name]["leaves"], about[name]["seen_by_all"])
        for name, often in client.schedule(settings).items()
    ]


DEFAULT_METHOD = "auto"  # of a study that names none
OURS = (
    "auto", "gfedntm", "lda", "nmf", "flda", "mixture", "kmeans", "discriminative", "fstc", "fsccl",
)  # fmt: skip
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
    """Return the method of a name: ours, registered, or of a package; StudyError if none has it."""
    return register(METHODS.find(name))  # an installed package's inferences are here only now


def versions(name: str) -> dict[str, int]:
    """Return the version of a method by its name, nothing if it is not installed."""
    return {name: find_method(name).version} if name in METHODS.names else {}
