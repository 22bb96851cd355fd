"""Documents to try things on, of installed packages or drawn, and ways to spread them."""

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
