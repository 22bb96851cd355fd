"""Settings of tiny studies of all methods that find topics or clusters by embeddings."""

from __future__ import annotations

from typing import Any

NETWORK = {"hidden": 8, "deletion": 0, "local_steps": 5, "batch_size": 30}
CLUSTERED: dict[str, tuple[str, dict[str, Any]]] = {
    "mixture": ("mixture", {"max_rounds": 4}),
    "kmeans": ("kmeans", {"max_rounds": 4}),
    "kmeans, fbow": ("kmeans", {"preset": "fbow"}),
    "kmeans, ftfidf": ("kmeans", {"preset": "ftfidf"}),
    "kmeans, fsbert": ("kmeans", {"preset": "fsbert", "max_rounds": 4}),
    "discriminative": ("discriminative", {"max_rounds": 4}),
    "fstc": ("fstc", {"max_rounds": 2}),
    "fsccl": ("fsccl", {"n_components": 3, "network": NETWORK, "max_rounds": 2}),
}
