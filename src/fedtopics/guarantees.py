"""What a study promises against each adversary: one table for the docs, `check` and the DPIA."""

from dataclasses import dataclass

SECURE, PLAIN = "secure", "plain"


@dataclass(frozen=True)
class Promise:
    """What one adversary sees and can do, and the tests that try to do more."""

    adversary: str
    sees: str
    can: str
    tests: tuple[str, ...] = ()


NOT_PROMISED = (
    "A sum over few documents can reveal them.",
    "Many rounds over the same few documents can reveal them.",
    "Without differential privacy, the model can reveal whether a document was used.",
    "Two studies of the same documents with different members reveal the difference, which is the "
    "update of the members that only one study has. A member refuses the second study unless its "
    "owner accepts it.",
    "With secure aggregation nobody finds out which member sends false updates.",
    "Nobody verifies the numbers of documents that members report.",
)


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
    rest = (
        f"the sum of the updates of the other {others} members"
        if others > 1
        else "the updates of the last member"
    )
    return [
        Promise(
            "a stranger on the network",
            "sizes and times of messages",
            "interrupt the network",
            ("tests/transport/test_pinned.py",),
        ),
        *(_secure(members, colluders, rest) if aggregation == SECURE else _plain(colluders)),
        *_thieves(aggregation),
        Promise(
            "a reader of the model or the report",
            "what the model reveals; with differential privacy at most what the stated epsilon "
            "allows",
            "nothing",
            ("tests/privacy/test_sensitivity.py",),
        ),
    ]


def _secure(members: int, colluders: int, rest: str) -> list[Promise]:
    world = "tests/protocol/test_world.py"
    who = "a member" if colluders == 1 else f"{colluders} members together"
    return [
        Promise(
            "the operator of the relay",
            "the members' names, which functions run, sizes, times and restarts, and the reason "
            "of a stop; no document, word, number, total or model",
            "stop the run, or keep the last total from some members",
            (world, "tests/protocol/test_attacks.py"),
        ),
        Promise(
            f"{who} without the relay",
            f"totals and, by subtraction, {rest}; each member's number of documents, its replies "
            "to calls, and which candidate words it lists",
            "change a total within its bounds unnoticed; stop the run without being named",
            (world, "tests/protocol/test_vocabulary.py"),
        ),
        Promise(
            f"the operator of the relay and {who}",
            "the same as without the relay",
            "choose an update after seeing the sum of the others; replace a total for all members "
            "alike, and so choose the model on which the next updates are computed; make the run "
            "unable to continue",
            (world, "tests/protocol/test_attacks.py"),
        ),
    ]


def _plain(colluders: int) -> list[Promise]:
    who = "a member" if colluders == 1 else f"{colluders} members together"
    return [
        Promise(
            "the operator of the server",
            "every update of every member, every total and the model",
            "replace totals",
            ("tests/protocol/test_plain.py",),
        ),
        Promise(
            who,
            "totals and replies to calls",
            'send false updates; the server names their sender, and outliers = "clip" or "median" '
            "limits what they change",
            ("tests/protocol/test_plain.py", "tests/methods/test_robust.py"),
        ),
    ]


def _thieves(aggregation: str) -> list[Promise]:
    world, attacks = "tests/protocol/test_world.py", "tests/protocol/test_attacks.py"
    if aggregation == PLAIN:
        disk = "updates and totals since the last checkpoint, and the model"
        return [
            Promise("a thief of the server's disk", disk, "act as the server", ()),
            Promise(
                "a thief of a member's disk",
                "documents if they are there, the model, the ledger, and the signing key",
                "act as this member until the roster changes",
                (),
            ),
        ]
    return [
        Promise(
            "a thief of a member's disk",
            "documents if they are there, the model, the ledger, totals and replies since the last "
            "checkpoint, and the signing key; with the relay's recordings, the totals of this and "
            "later steps; no update of another member, and nothing from earlier steps",
            "act as this member until the roster changes",
            (world, attacks),
        ),
        Promise(
            "a thief of the relay's disk",
            "sizes, the last list, a padded total and sealed replies",
            "act as the relay",
            (world,),
        ),
        Promise(
            "a member restored from a backup, or running twice",
            "nothing more",
            "stop the run, unless the lists contained nothing that the member forgot",
            (world,),
        ),
    ]
