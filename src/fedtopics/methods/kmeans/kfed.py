"""k-FED: each client clusters its own documents once, and the centres are merged.

References
----------
Dennis, Li and Smith, Heterogeneity for the Win: One-Shot Federated Clustering, ICML 2021,
algorithm 2.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedtopics.errors import StudyError
from fedtopics.inference.points import Numbers, nearest, sums_by_label
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.replies import LIMIT, Field, Template, UpTo, sums
from fedtopics.methods.kmeans.client import KMeansSettings


def own_centres(
    agreement: Agreement, settings: KMeansSettings, origin: Numbers
) -> dict[str, dict[str, Any]]:
    """Return each client's own centres (step 1); clients with few documents have fewer centres."""
    clusters = UpTo("clusters", settings.n_components)
    most = LIMIT if settings.needed_embedding is None else 1.0  # points have length 1
    centres = Field((clusters, len(origin)), most, -most)
    template: Template = {"centres": centres, "counts": sums(clusters, each=1)}
    return agreement.call("own_centres", template, round=1, origin=origin)


def merge_centres(replies: Mapping[str, Mapping[str, Any]], n_clusters: int) -> Numbers:
    """Merge the clients' own centres (steps 2 to 8); unlike in k-FED, means are weighted."""
    centres = np.concatenate([replies[name]["centres"] for name in sorted(replies)])
    counts = np.concatenate([replies[name]["counts"] for name in sorted(replies)])
    if len(centres) < n_clusters:
        raise StudyError(
            f"Together, the clients have only {len(centres)} clusters with enough documents, fewer "
            f"than n_components = {n_clusters}; lower n_components, or give more documents."
        )
    first = next(len(replies[name]["counts"]) for name in sorted(replies))
    chosen = list(range(min(max(first, 1), n_clusters)))
    while len(chosen) < n_clusters:
        distances = nearest(centres, centres[chosen])[1]
        distances[chosen] = -1
        chosen.append(int(distances.argmax()))
    labels = nearest(centres, centres[chosen])[0]
    sums, _ = sums_by_label(centres * counts[:, None], labels, n_clusters)
    weights = np.bincount(labels, counts, n_clusters)[:, None]
    return np.where(weights > 0, sums / np.maximum(weights, 1), centres[chosen])
