"""What a client lets out, whatever a server asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtopics.errors import PolicyError, StudyError
from fedtopics.federation.policy import Policy
from fedtopics.text.rules import TextRules
from fedtopics.text.words import PATTERNS


def test_policy_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('min_documents = 3\nmethods = ["gfedntm", "lda"]\n')
    policy = Policy.read(path)
    assert policy == Policy(min_documents=3, methods=("gfedntm", "lda"))
    assert (policy.min_document_frequency, policy.max_rounds) == (5, 100_000)
    assert (policy.min_clients_in_sum, policy.token_patterns) == (2, ())


def test_where_replies_are_seen_few_documents_are_256() -> None:
    assert Policy().min_documents == 10
    assert Policy(max_rounds=5).where_seen() == Policy(max_rounds=5, min_documents=256)
    for said in (10, 300):
        assert Policy(min_documents=said).where_seen() == Policy(min_documents=said)
    few = "of 10, each can be read from one gradient (10 of 10 exactly, 49 of 52"
    assert few in Policy(min_documents=255).described(seen=True)
    assert few not in Policy(min_documents=256).described(seen=True)
    assert Policy(min_documents=12, min_documents_in_sum=1000).described(seen=False) == (
        "By this client's policy a reply sums over at least 12 documents, a total over at least 2 "
        "clients and 1,000 documents, and a word leaves if at least 5 documents have it."
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("min_document = 3", "there is no key 'min_document'; did you mean 'min_documents'?"),
        ("min_documents = 0", "'min_documents' is 0: Input should be greater than or equal to 1"),
        ('max_rounds = "many"', "'max_rounds' is 'many'"),
        ("min_documents = ", "Invalid"),
    ],
)
def test_unusable_policy(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(content)
    with pytest.raises(StudyError, match=rf"The policy .*policy\.toml cannot be used: .*{message}"):
        Policy.read(path)


def test_missing_policy(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="No such file"):
        Policy.read(tmp_path / "policy.toml")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("flda", 6, 30), "'north' does not allow the method 'flda'"),
        (("lda", 7, 30), "asks for 7 rounds, the policy of client 'north' allows 6; nothing has"),
        (("lda", 6, 29), "sums over at least 30 documents, and it has 29; nothing has left"),
    ],
)
def test_a_policy_refuses_a_study(asked: tuple[str, int, int], message: str) -> None:
    policy = Policy(methods=("lda",), max_rounds=6, min_documents=30)
    policy.check_study("north", "lda", 6, 30)
    with pytest.raises(PolicyError, match=message):
        policy.check_study("north", *asked)


def test_a_sum_is_over_enough_clients() -> None:
    policy = Policy(min_clients_in_sum=3)
    policy.check_members("north", ["east", "north", "south"])
    with pytest.raises(PolicyError, match="'north' asks for sums over at least 3 clients, this"):
        policy.check_members("north", ["east", "north"])


def test_a_pattern_of_words_without_a_name_is_refused_unless_the_policy_names_it() -> None:
    """A pattern can read: one that finds what stands behind a name tells what stands there."""
    own = r"(?<=patient )\w+"
    for name in PATTERNS:
        Policy().check_study("north", "lda", 6, 30, TextRules(token_pattern=name))
    for policy in (Policy(), Policy(token_patterns=("[a-z]+", r"(?<=patient )\w+ "))):
        with pytest.raises(PolicyError, match="which the policy of client 'north' does not name"):
            policy.check_study("north", "lda", 6, 30, TextRules(token_pattern=own))
    allowing = Policy(token_patterns=(own,))
    allowing.check_study("north", "lda", 6, 30, TextRules(token_pattern=own))
    Policy().check_study("north", "lda", 6, 30)  # of one's own


@pytest.mark.parametrize(
    ("secure", "signed", "message"),
    [(False, True, "does not have them; set secure = true"), (True, False, "do not sign; give")],
)
def test_required_masks(secure: bool, signed: bool, message: str) -> None:
    """Without signatures who adds can be all the others."""
    policy = Policy(secure="required")
    policy.check_masks("north", secure=True, signed=True)
    Policy().check_masks("north", secure=False, signed=False)
    with pytest.raises(PolicyError, match=message):
        policy.check_masks("north", secure, signed)
    policy = Policy(min_documents_in_sum=1000)
    with pytest.raises(PolicyError, match=f"{message}.*leave min_documents_in_sum out"):
        policy.check_masks("north", secure, signed)
