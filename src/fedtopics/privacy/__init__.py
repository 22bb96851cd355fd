"""Differential privacy: how much noise a study's sums need, and a client's part of it.

Two sets of documents are neighbours if one has one document more than the other.
"""

from fedtopics.privacy.accounting import Budget, Privacy, PrivacySettings
from fedtopics.privacy.noise import BOUND, MOST_CLIENTS, Noise

__all__ = ["BOUND", "MOST_CLIENTS", "Budget", "Noise", "Privacy", "PrivacySettings"]
