"""Documents to try things on: those of installed packages, and synthetic ones of known topics."""

from fedtopics.datasets.packages import PACKAGES, package_documentation
from fedtopics.datasets.synthetic import SyntheticClients, SyntheticDocuments, synthetic_lda

__all__ = [
    "PACKAGES",
    "SyntheticClients",
    "SyntheticDocuments",
    "package_documentation",
    "synthetic_lda",
]
