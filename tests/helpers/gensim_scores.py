"""Coherence as gensim computes it."""

from gensim.corpora import Dictionary
from gensim.models import CoherenceModel

MEASURES = {"c_v": "c_v", "npmi": "c_npmi", "u_mass": "u_mass"}


def gensim_scores(
    topics: list[list[str]], texts: list[list[str]], measure: str, window: int | None
) -> list[float]:
    model = CoherenceModel(
        topics=topics,
        texts=texts,
        dictionary=Dictionary(texts),
        coherence=MEASURES[measure],
        window_size=window,
        processes=1,
    )
    return list(model.get_coherence_per_topic())
