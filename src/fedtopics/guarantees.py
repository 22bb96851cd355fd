"""What a study does not promise, and what attacks computed: for the docs, `check` and the DPIA."""

from pathlib import Path

from fedtopics.files import read_toml

TABLES = read_toml(Path(__file__).with_name("guarantees.toml"))


def not_promised(**has: bool) -> list[str]:
    """Return what a study does not promise.

    Parameters
    ----------
    has : whether the study has secure aggregation ("secure"), differential privacy ("noise"),
        minibatches ("draws") and a column of persons ("persons"); those not given may be either.
    """
    return [
        row["text"]
        for row in TABLES["not_promised"]
        if all(has.get(name, value) == value for name, value in row.items() if name != "text")
    ]


def attacked(method: str, of: str) -> str:
    """Return what attacks computed from an "update" or a "total" of a method; "" if not tried."""
    text: str = TABLES["attacks"][of]
    figures = TABLES["attacks"]["methods"].get(method)
    return "" if figures is None else text.format(**figures)
