"""What a study promises against each adversary: one table for the docs, `check` and the DPIA."""

from dataclasses import dataclass
from pathlib import Path

from fedtopics.files import read_toml

SECURE = "secure"
PLAIN = "plain"
TABLES = read_toml(Path(__file__).with_name("guarantees.toml"))


@dataclass(frozen=True)
class Promise:
    """What one adversary sees and can do, and the tests that try to do more."""

    adversary: str
    sees: str
    can: str
    tests: tuple[str, ...] = ()


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


def promises(aggregation: str, members: int, colluders: int = 1) -> list[Promise]:
    """Return the table for a study.

    Parameters
    ----------
    aggregation : {"secure", "plain"}
    members : int
        Number of members whose updates are in a sum; observers do not count.
    colluders : int
        Number of members that an adversary controls.
    """
    others = members - colluders
    names = {
        "who": "a member" if colluders == 1 else f"{colluders} members together",
        "rest": f"the sum of the updates of the other {others} members"
        if others > 1
        else "the updates of the last member",
    }
    return [
        Promise(
            adversary=row["adversary"].format(**names),
            sees=row["sees"].format(**names),
            can=row["can"].format(**names),
            tests=tuple(row.get("tests", ())),
        )
        for row in TABLES["promises"]
        if row.get("aggregation", aggregation) == aggregation
    ]
