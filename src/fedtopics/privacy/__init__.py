"""Differential privacy: how much noise a study's sums need, and the part that each client adds.

Two sets of documents are neighbours if one contains one document more than the other.
"""

from fedtopics.privacy.accounting import Budget, Privacy, PrivacySettings
from fedtopics.privacy.noise import BOUND, MOST_CLIENTS, Noise

__all__ = ["BOUND", "MOST_CLIENTS", "Budget", "Noise", "Privacy", "PrivacySettings"]
