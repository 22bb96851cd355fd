"""Methods by name, with the data that studies, policies, commands, reports and estimators need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fedtopics.extras import Registry

if TYPE_CHECKING:  # the command line names methods without importing their dependencies
    from numpy.typing import NDArray

    from fedtopics.inference import Inference
    from fedtopics.methods.core.client import TopicClient
    from fedtopics.methods.core.settings import TopicSettings
    from fedtopics.methods.core.training import Trainer


@dataclass(frozen=True)
class PublishedFunction:
    """A client's function whose result is sent, as people learn of it."""

    function: str
    often: str  # for people, such as "once"
    data_sent: str
    seen_by_all: bool  # each reply separately


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


def exchanges_of(
    client: type[TopicClient[Any]], settings: TopicSettings
) -> list[PublishedFunction]:
    declared = {name: vars(function) for name, function in client.functions().items()}
    return [
        PublishedFunction(
            function=name,
            often=often,
            data_sent=declared[name]["data_sent"],
            seen_by_all=declared[name]["seen_by_all"],
        )
        for name, often in client.schedule(settings).items()
    ]


DEFAULT_METHOD = "auto"  # for studies that name no method
OURS = (
    *("auto", "gfedntm", "lda", "nmf", "flda", "mixture"),
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
