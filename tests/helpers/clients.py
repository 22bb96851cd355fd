"""Two clients with documents of one subject each."""

import numpy as np

TREES = ["oak", "beech", "fir", "ash", "elm", "yew", "larch", "pine"]
BOATS = ["ketch", "sloop", "yawl", "brig", "cutter", "dory", "barque", "schooner"]


def documents(words: list[str], seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, 12)) for _ in range(40)]


TEXTS = {"boats": documents(BOATS, 1), "trees": documents(TREES, 0)}
ALL = TEXTS["boats"] + TEXTS["trees"]
