"""What the training of a network begins with: a model, topics that are given, or found by sums."""

from __future__ import annotations

from fedtopics.inference.mixture import topics_of
from fedtopics.inference.points import unit_rows
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.first_topics import find_first_topics
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.gfedntm.state import NetworkState
from fedtopics.methods.gfedntm.warm_start import start_network
from fedtopics.methods.mixture.client import calls_of_mixture
from fedtopics.methods.mixture.rounds import find_mixture
from fedtopics.methods.mixture.settings import MixtureSettings
from fedtopics.methods.plan import Plan


def begin(state: NetworkState, agreement: Agreement, plan: Plan[GFedNTMSettings]) -> None:
    """Replace a state's first weights by what training begins with, in place."""
    settings, network = plan.settings, state.network
    if plan.start is not None:
        start_network(state, plan.start, agreement.vocabulary.words)
    elif settings.initialisation == "mixture":
        mixture = mixture_of(settings)
        sums = find_mixture(agreement, mixture, plan.seed)
        # Embeddings are a network's as they come, measured from no origin.
        directions = unit_rows(unit_rows(sums["directions"]) + sums["origin"])
        topics = topics_of(sums["words"], mixture.smoothing)
        network.start_from(state.weights, topics, directions)
    elif settings.initialisation != "random":
        network.start_from(state.weights, find_first_topics(agreement, settings, plan.seed))


def calls_before(settings: GFedNTMSettings) -> dict[str, str]:
    """Return how often which functions find topics to begin with, besides anchors."""
    if settings.initialisation != "mixture":
        return {}
    mixture = mixture_of(settings)
    return calls_of_mixture(mixture, f"at most {mixture.max_rounds} times, before the first round")


def mixture_of(settings: GFedNTMSettings) -> MixtureSettings:
    """Return the settings of the mixture that a network begins with."""
    return MixtureSettings(n_components=settings.n_components, embedding=settings.embedding)
