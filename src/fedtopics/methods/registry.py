"""Methods by name: what a study, a policy, a command, a report and an estimator read of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fedtopics.extras import Registry

if TYPE_CHECKING:  # they load torch, and the command line names the methods without it
    from fedtopics.inference import Inference
    from fedtopics.methods.client import TopicClient
    from fedtopics.methods.settings import TopicSettings
    from fedtopics.methods.training import Program


@dataclass(frozen=True)
class Exchange:
    """A function of the client's half that a study calls.

    Parameters
    ----------
    function : str
    often : str
        How often it is called.
    leaves : str
        What leaves the client with a reply.
    """

    function: str
    often: str
    leaves: str


@dataclass(frozen=True)
class Method:
    """A federated method, as all else knows it.

    Parameters
    ----------
    name : str
        In a study's ``[method]``.
    title : str
        For people.
    settings : subclass of TopicSettings
    server : subclass of Program
        Made of a `Plan`.
    client : subclass of TopicClient
        Made of a `Plan` and a `Site`.
    version : int
        Of what the client's functions take, return and compute.
    shows : {"topics", "clusters"}
        What its models have.
    starts_from_models : bool
        Whether a training can start from a model or topics.
    takes_new_documents : bool
        Whether a client's documents may grow while it runs.
    inferences : sequence of classes
        What finds topics or clusters by its models, besides networks.
    """

    name: str
    title: str
    settings: type[TopicSettings]
    server: type[Program[Any, Any]]
    client: type[TopicClient[Any]]
    version: int = 1
    shows: Literal["topics", "clusters"] = "topics"
    starts_from_models: bool = False
    takes_new_documents: bool = False
    inferences: Sequence[type[Inference]] = field(default=())

    def exchanges(self, settings: TopicSettings) -> list[Exchange]:
        """Return what a study with these settings asks of a client."""
        schedule = self.client.schedule(settings)
        return [Exchange(name, often, self.leaves(name)) for name, often in schedule.items()]

    @property
    def functions(self) -> list[str]:
        """Names of the functions that the client's half has for studies, in the alphabet."""
        return sorted(name for name in dir(self.client) if self.leaves(name))

    def leaves(self, function: str) -> str:
        """Return what leaves a client with a reply of a function; nothing for an unknown one."""
        return str(getattr(getattr(self.client, function, None), "leaves", ""))


METHODS: Registry[Method] = Registry(
    "method",
    "fedtopics.methods",
    {
        name: f"fedtopics.methods.{name}:METHOD"
        for name in ("gfedntm", "lda", "flda", "kmeans", "discriminative", "fstc", "fsccl")
    },
    maker=lambda method: method.server,
)


def register(method: Method) -> Method:
    """Make a method known under its name, and its inferences under theirs.

    Raises
    ------
    StudyError
        If a name is that of another one.
    """
    from fedtopics.inference import INFERENCES

    for inference in method.inferences:
        INFERENCES.register(inference.name, inference)
    return METHODS.register(method.name, method)


def find_method(name: str) -> Method:
    """Return the method of a name: one of ours, a registered one, or an installed package's.

    Raises
    ------
    StudyError
        If there is none.
    """
    return register(METHODS.find(name))  # an installed package's inferences are here only now


def versions() -> dict[str, int]:
    """Return the version of each method that is here."""
    return {name: find_method(name).version for name in METHODS.names}
