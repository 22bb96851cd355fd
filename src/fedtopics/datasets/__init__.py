"""Example documents, from installed packages or synthetic, and ways to split them over clients."""

from fedtopics.datasets.packages import PACKAGES, package_documentation
from fedtopics.datasets.splits import split_clients
from fedtopics.datasets.synthetic import SyntheticClients, SyntheticDocuments, synthetic_lda

__all__ = [
    "PACKAGES",
    "SyntheticClients",
    "SyntheticDocuments",
    "package_documentation",
    "split_clients",
    "synthetic_lda",
]
