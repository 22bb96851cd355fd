"""The shapes of a network's arrays, from which the bounds of all replies follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from fedtopics.contract.replies import Bounds, Template
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.networks.base import Shape, Shapes
from fedtopics.networks.neural import NeuralTopicModel
from fedtopics.networks.passes import finish_all, sums_of_one_document

Name = tuple[str, str]
PROBES = 2, 3  # vocabulary sizes: shapes of two such networks differ along the axis of words


@dataclass(frozen=True)
class Sizes:
    """Shapes of a network's arrays, for a number of words.

    Parameters
    ----------
    weights : of all weights, by name.
    sums : of the sums of each stage, by its name.
    shared : of the values computed from the sums, by stage and name.
    """

    network: NeuralTopicModel
    weights: Shapes
    sums: Shapes
    shared: Mapping[str, Shapes]

    @classmethod
    def of(cls, settings: GFedNTMSettings, n_words: int) -> Sizes:
        return _sizes(settings.model_dump_json(), n_words)

    def bounds(self, shapes: Shapes, rows: bool = False) -> Template:
        """Return the bounds of arrays, or of gradients with `rows` only for words that occur."""
        words = self.network.row_weights if rows else ()
        kind = partial(Bounds, dtype=self.network.precision)
        return {name: kind(shape, rows=name in words) for name, shape in shapes.items()}

    @property
    def of_sums(self) -> dict[str, Bounds]:
        return {
            stage.name: Bounds(self.sums[stage.name], squares=stage.squares)
            for stage in self.network.stages
        }


@lru_cache(maxsize=8)
def _sizes(settings: str, n_words: int) -> Sizes:
    """Find shapes from networks of few words: those of a network of many words need memory."""
    build = GFedNTMSettings.model_validate_json(settings).build
    small, larger = (_shapes(build(n)) for n in PROBES)
    more_words = n_words - PROBES[0]

    def grown(name: Name) -> Shape:
        return tuple(
            n + (more - n) * more_words for n, more in zip(small[name], larger[name], strict=True)
        )

    network = build(n_words)
    return Sizes(
        network=network,
        weights={name[1]: grown(name) for name in small if name[0] == "weights"},
        sums={name[1]: grown(name) for name in small if name[0] == "sums"},
        shared={
            stage.name: {name[1]: grown(name) for name in small if name[0] == stage.name}
            for stage in network.stages
        },
    )


def _shapes(network: NeuralTopicModel) -> dict[Name, Shape]:
    """Return the shapes of weights and sums by name, and of shared values by stage and name."""
    weights = network.initial_weights(0)
    sums = sums_of_one_document(network, weights)
    arrays = {"weights": weights, "sums": sums, **finish_all(network, weights, sums)}
    return {
        (kind, name): tuple(array.shape)
        for kind, by_name in arrays.items()
        for name, array in by_name.items()
    }
