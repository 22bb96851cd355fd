"""What the FSTC paper has in its tables 1 and 2; the latter was made with another encoder."""

from typing import NamedTuple

PAPERS_ENCODER = "distilbert-base-nli-stsb-mean-tokens"


class Published(NamedTuple):
    """Scores of one method on one data set in per cent, each with its deviation."""

    acc: float
    acc_deviation: float
    nmi: float
    nmi_deviation: float


class Counts(NamedTuple):
    """What a data set has; words are the mean over its texts."""

    clusters: int
    texts: int
    words: float


TABLE_1 = {
    "agnews": Counts(4, 8_000, 23),
    "stackoverflow": Counts(20, 20_000, 8),
    "biomedical": Counts(20, 20_000, 13),
}
_METHODS = ("fbow", "ftfidf", "fsbert", "fsccl", "stc", "rstc", "paper")
_TABLE_2 = {  # a line a method
    "agnews": (
        (28.14, 0.89, 3.26, 0.65),
        (30.58, 1.35, 7.48, 1.81),
        (65.95, 0.00, 31.55, 0.00),
        (81.17, 0.11, 54.78, 0.18),
        (84.38, 0.92, 60.75, 1.60),
        (84.75, 0.60, 61.33, 0.95),
        (85.10, 0.25, 62.45, 0.45),
    ),
    "stackoverflow": (
        (12.32, 1.23, 6.37, 1.53),
        (42.66, 2.72, 43.79, 3.57),
        (60.55, 0.00, 51.79, 0.00),
        (70.45, 1.84, 61.87, 0.71),
        (77.90, 1.12, 67.81, 0.51),
        (78.58, 0.73, 68.11, 0.25),
        (79.70, 1.13, 68.83, 0.28),
    ),
    "biomedical": (
        (13.92, 1.68, 8.53, 1.81),
        (25.87, 0.77, 23.86, 1.42),
        (39.50, 0.00, 32.63, 0.00),
        (42.10, 0.72, 37.40, 0.18),
        (45.31, 0.75, 38.25, 0.34),
        (45.64, 0.58, 38.36, 0.20),
        (46.67, 0.72, 39.86, 0.58),
    ),
}
PUBLISHED = {
    data: {name: Published(*line) for name, line in zip(_METHODS, lines, strict=True)}
    for data, lines in _TABLE_2.items()
}  # by data set, then by method
