"""What a client lets out, whatever a server asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtopics.errors import StudyError
from fedtopics.federation.policy import Policy


def test_policy_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('min_documents = 3\nmethods = ["gfedntm", "other"]\n')
    policy = Policy.read(path)
    assert policy == Policy(min_documents=3, methods=("gfedntm", "other"))
    assert (policy.min_document_frequency, policy.max_rounds) == (5, 100_000)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("min_document = 3", "there is no key 'min_document'; remove it or correct its name"),
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
