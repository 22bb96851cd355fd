"""Differential privacy: how much noise a study's sums need, and a client's part of it.

The number of documents is no secret's guard here: neighbours are two sets of documents of which one
has one document more. Whoever sees all that a study releases can hardly tell which of the two it
was of: by a factor of e^epsilon at most, but for cases of probability delta.
"""

from fedtopics.privacy.accounting import Budget, Privacy, PrivacySettings
from fedtopics.privacy.noise import BOUND, MOST_CLIENTS, Noise

__all__ = ["BOUND", "MOST_CLIENTS", "Budget", "Noise", "Privacy", "PrivacySettings"]
