"""What leaves a client."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import Corpus, Policy
from fedtopics.contract.interfaces import Position
from fedtopics.contract.payload import CountsByWord, SparseRows
from fedtopics.errors import DataError, PolicyError, StudyError
from fedtopics.protocol.roster import Key, certificate_fingerprint, shown
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import count_words
from fedtopics.text.words import PATTERNS
from tests.helpers.doors import Echo, door

CANARY = "quetzalcoatl"


def test_door_hands_on_what_the_policy_allows() -> None:
    half = Echo(documents=10, document_frequency=np.array([5, 7]), loss=1.5)
    assert door(half, Policy()).ask("echo", {"round": 100_000}) is half.reply


def test_door_refuses_a_method() -> None:
    with pytest.raises(PolicyError, match="'north' does not allow the method 'other'"):
        door(Echo(), Policy(methods=("gfedntm", "lda")), "other")


@pytest.mark.parametrize("function", ["secret", "reply", "__init__", "echo "])
def test_door_refuses_what_is_not_published(function: str) -> None:
    with pytest.raises(PolicyError, match=f"Client 'north' publishes no function '{function}'"):
        door(Echo(documents=1)).ask(function, {})


@pytest.mark.parametrize(
    "reply",
    [
        {"documents": 9},
        {"loss": 1.0},
        {"documents": 0, "loss": 1.0},
        {"documents": 0, "loss": float("nan")},
        {"documents": 0, "name": "oak"},
        {"documents": 0, "words": ["oak"]},
        {"documents": 0, "words": ["", "oak"]},
        {"documents": 0, "counts": np.array([0, 0, 1])},
        {"documents": 0, "counts": np.array([0.0, -1e-300])},
        {"documents": 0, "known": np.array([False, True])},
        {"documents": 0, "deep": {"deeper": {"x": np.array([[0], [2]])}}},
        {"documents": 0, "rows": SparseRows(np.array([1]), np.zeros((1, 2)), 3)},
        {"documents": 0, "rows": SparseRows(np.array([0]), np.ones((1, 2)), 3)},
        {"documents": 0, "words": CountsByWord(["oak"], np.zeros((1, 2), np.int64))},
    ],
)
def test_door_refuses_too_few_documents(tmp_path: Path, reply: dict[str, Any]) -> None:
    message = f"documents of {reply.get('documents', 0)} persons, but its policy requires 10"
    with pytest.raises(PolicyError, match=message):
        door(Echo(**reply), Policy(), path=tmp_path / "ledger.jsonl").ask("echo", {})
    assert (tmp_path / "ledger.jsonl").read_text() == ""


@pytest.mark.parametrize(
    "reply",
    [
        {"documents": 0},
        {
            "documents": 0,
            "loss": 0.0,
            "words": [],
            "counts": np.zeros((2, 3)),
            "none": np.zeros((0, 4)),
            "deep": {"pairs": np.zeros((2, 2), np.int64), "windows": 0},
            "rows": SparseRows(np.zeros(0, np.int64), np.zeros((0, 2)), 3),
            "named": CountsByWord.columns(3),
        },
    ],
)
def test_door_lets_out_that_there_is_nothing_to_say(reply: dict[str, Any], path: Path) -> None:
    half = Echo(**reply)
    assert door(half, Policy(), path=path).ask("echo", {}) is half.reply
    assert json.loads(path.read_text())["documents"] == 0


def test_door_refuses_a_rare_word(tmp_path: Path) -> None:
    words = CountsByWord(["oak", CANARY], np.array([[5, 9], [4, 90]]))
    half = Echo(documents=10, deep={"words": words}, none=CountsByWord.columns(2))
    with pytest.raises(PolicyError, match="names a word of 4 documents, but its") as e:
        door(half, Policy(), path=tmp_path / "ledger.jsonl").ask("echo", {})
    assert CANARY not in str(e.value)
    assert (tmp_path / "ledger.jsonl").read_text() == ""


@pytest.mark.parametrize("word", ["x" * 101, f"{CANARY}\n", "\x1b[2J"])
@pytest.mark.parametrize("kind", ["named", "list", "text"])
def test_door_refuses_what_is_no_word(word: str, kind: str, tmp_path: Path) -> None:
    """A text is no word, and a word gives no orders to a terminal."""
    content = {"named": CountsByWord([word], np.array([[50]])), "list": ["oak", word], "text": word}
    with pytest.raises(PolicyError, match="with more than 100 characters, or with a") as e:
        door(Echo(documents=50, x=content[kind]), path=tmp_path / "ledger").ask("echo", {})
    assert word not in str(e.value)
    assert (tmp_path / "ledger").read_text() == ""


def test_positions_only_grow() -> None:
    guarded = door(half := Echo(documents=10))
    grown = [Position(1), Position(1, 1, 2), Position(1, 2), Position(2), Position(7, 3, 2)]
    for number, position in enumerate(grown):
        guarded.ask("echo", {}, position)
        assert half.attempt == position.attempt
        for before in grown[:number]:
            with pytest.raises(PolicyError, match=f"gets a call of 'echo' of turn {before.turn}"):
                guarded.ask("echo", {}, before)
    assert half.calls == len(grown)
    assert guarded.turn == 7


def test_a_position_is_answered_again_with_the_same_bytes_and_no_others(path: Path) -> None:
    position = Position(3, 2, 1)
    payload = {"round": 4, "weights": {"w": np.arange(3.0)}, "words": ["oak"]}
    half = Echo(documents=10, sums=np.arange(4.0))
    for _ in range(2):  # of which the second is a process that was begun anew
        guarded = door(half, path=path)
        assert guarded.ask("echo", payload, position) is half.reply
        for other in (
            payload | {"weights": {"w": np.arange(3.0) + 1e-12}},
            payload | {"weights": {"w": np.arange(3.0).reshape(1, 3)}},
            payload | {"weights": {"w": np.arange(3.0).view(np.int64)}},
            payload | {"words": ["elm"]},
            {key: payload[key] for key in ("round", "words")},
        ):
            with pytest.raises(PolicyError, match="answered 'echo' of turn 3, attempt 2, ex"):
                guarded.ask("echo", other, position)
        with pytest.raises(PolicyError, match="answered 'echo' of turn 3"):
            guarded.ask("fail", payload, position)
    changed = Echo(documents=10, sums=np.arange(4.0) + 1)
    with pytest.raises(PolicyError, match="the reply would be different now, as the documents or"):
        door(changed, path=path).ask("echo", payload, position)
    assert len(path.read_text().splitlines()) == 2


def test_another_run_begins_at_the_first_turn_and_its_rounds_count(path: Path) -> None:
    policy = Policy(max_rounds=2)
    door(Echo(documents=10), policy, path=path, run="a").ask("echo", {"round": 1}, Position(9))
    other = door(Echo(documents=10), policy, path=path, run="b")
    other.ask("echo", {"round": 1}, Position(1))
    with pytest.raises(PolicyError, match="allows 2 rounds, and this would be one more"):
        other.ask("echo", {"round": 2}, Position(2))
    with pytest.raises(PolicyError, match="which was earlier"):
        door(Echo(documents=10), policy, path=path, run="a").ask("echo", {}, Position(8))


def test_what_is_repeated_leaves_no_trace(tmp_path: Path) -> None:
    guarded = door(half := Echo(documents=10), path=tmp_path / "ledger.jsonl")
    guarded.ask("echo", {}, Position(5))
    guarded.again("echo", {"round": 1}, Position(2, 4))
    assert (half.calls, half.attempt, guarded.turn) == (2, 4, 5)
    assert len((tmp_path / "ledger.jsonl").read_text().splitlines()) == 1
    for call in (guarded.ask, guarded.again):
        with pytest.raises(DataError, match=r"^Client 'north': no document is left\.$"):
            call("fail", {}, Position(6))


def test_door_refuses_one_round_too_many_before_it_calls() -> None:
    half = Echo(documents=10)
    guarded = door(half, Policy(max_rounds=3))
    for round_ in (0, 11, 12, 12, 11, 13):  # of a model that goes on after ten
        guarded.ask("echo", {"round": round_})
    guarded.ask("echo", {})
    with pytest.raises(PolicyError, match="'north' allows 3 rounds, and this would be one more"):
        guarded.ask("echo", {"round": 1})
    guarded.ask("echo", {"round": 13})
    assert half.calls == 8


def test_attempts_count_as_rounds() -> None:
    """A round that is worked again is over other documents, so it tells as much as another one."""
    guarded = door(Echo(documents=10), Policy(max_rounds=3))
    for attempt in (1, 2, 3):
        guarded.ask("echo", {"round": 1}, Position(2, attempt))
    with pytest.raises(PolicyError, match="allows 3 rounds"):
        guarded.ask("echo", {"round": 1}, Position(2, 4))


def test_rounds_that_the_ledger_has_count(path: Path) -> None:
    first = door(Echo(documents=10), Policy(max_rounds=2), path=path)
    for payload in ({}, {"round": 7}, {"round": 8}):
        first.ask("echo", payload)
    path.write_text(path.read_text() + '{"round": 9')  # a crash
    after = door(half := Echo(documents=10), Policy(max_rounds=2), path=path)
    after.ask("echo", {"round": 8})
    with pytest.raises(PolicyError, match="allows 2 rounds"):
        after.ask("echo", {"round": 9})
    assert half.calls == 1
    assert len(path.read_text().splitlines()) == 4


def test_policy_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('min_persons = 3\nmethods = ["gfedntm", "lda"]\n')
    assert Policy.read(path) == Policy(
        min_persons=3,
        methods=("gfedntm", "lda"),
        min_persons_per_word=5,
        max_rounds=None,
        min_clients_in_sum=2,
        token_patterns=(),
    )
    path.chmod(0o666)
    with pytest.raises(StudyError, match="Every user of this machine can change the policy"):
        Policy.read(path)


def test_what_a_policy_does_not_say_depends_on_who_can_see_updates() -> None:
    assert (Policy().min_persons, Policy().min_clients_in_sum) == (10, 2)
    assert Policy(max_rounds=5).in_study(False) == Policy(max_rounds=5)
    assert Policy(max_rounds=5).in_study(True) == Policy(max_rounds=5, min_clients_in_sum=3)
    Policy(min_persons=10).check_aggregation("a", False)
    Policy().check_aggregation("a", True)
    with pytest.raises(PolicyError, match=r"not set min_persons\. .* add min_persons = 256 to"):
        Policy().check_aggregation("a", False)
    for given in (1, 2, 9):
        assert Policy(min_clients_in_sum=given).in_study(True) == Policy(min_clients_in_sum=given)
    few = "attacks recovered 10 of 10 documents from one gradient, 49 of 52"
    assert few in Policy(min_persons=255).described(seen=True)
    assert few not in Policy(min_persons=256).described(seen=True)
    assert "at least 5 of its persons, as the policy requires." in Policy().described(False, 2)
    assert "at least 8 of its persons, as the study requires." in Policy().described(False, 8)
    assert Policy(min_persons=12, min_persons_in_sum=1000).described(seen=False) == (
        "By this client's policy, an update sums over at least 12 persons and a total over at "
        "least 2 clients and 1,000 persons. A word is shared only if it is in documents of at "
        "least 5 of its persons, as the policy requires."
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("min_person = 3", "there is no key 'min_person'; did you mean 'min_persons'?"),
        ("min_persons = 0", "'min_persons' is 0: Input should be greater than or equal to 1"),
        ('max_rounds = "many"', "'max_rounds' is 'many': Input should be a valid integer"),
        ('min_persons = "50"', "'min_persons' is '50': write the value without quotes"),
        ("min_persons = true", "'min_persons' is True: Input should be a valid integer"),
        ("methods = 3", "'methods' is 3: Input should be a valid tuple"),
        ("min_documents = 3", "there is no key 'min_documents'; use min_persons"),
        ("min_documents_in_sum = 3", "use min_persons_in_sum"),
        ("min_document_frequency = 3", "use min_persons_per_word"),
        ("account = 'x'", "use memory"),
        ("person_column = 'patient'", "Input should be 'required'"),
        ("unknown_persons = 'many'", "Input should be 'one'"),
        ("min_clients_per_group = 0", "greater than or equal to 1"),
        ("min_persons = ", "Invalid"),
        (None, "there is no such file"),
    ],
)
def test_unusable_policy(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "policy.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StudyError, match=rf"The policy .*policy\.toml cannot be used: .*{message}"):
        Policy.read(path)


@pytest.mark.parametrize(
    ("method", "rounds", "documents", "message"),
    [
        ("flda", 6, 30, "'north' does not allow the method 'flda'"),
        ("lda", 7, 30, "has 7 rounds, but the policy of client 'north' allows 6. Nothing was"),
        ("lda", 6, 29, "sums over at least 30 persons, but its documents are of 29. Nothing was"),
    ],
)
def test_a_policy_refuses_a_study(method: str, rounds: int, documents: int, message: str) -> None:
    policy = Policy(methods=("lda",), max_rounds=6, min_persons=30)
    policy.check_study("north", "lda", 6, 30)
    with pytest.raises(PolicyError, match=message):
        policy.check_study("north", method, rounds, documents)


def test_a_sum_is_over_enough_clients() -> None:
    policy = Policy(min_clients_in_sum=3)
    policy.check_members("north", ["east", "north", "south"])
    with pytest.raises(PolicyError, match="'north' requires sums over at least 3 clients, but"):
        policy.check_members("north", ["east", "north"])


# A pattern can read: one that finds what stands behind a name tells what stands there.
BEHIND = r"(?<=patient )\w+"


@pytest.mark.parametrize(
    ("policy", "rules", "problem"),
    [
        ({}, {"token_pattern": BEHIND}, "the policy of client 'north' does not all"),
        (
            {"token_patterns": ("[a-z]+", f"{BEHIND} ")},
            {"token_pattern": BEHIND},
            "the policy of client 'north' does not all",
        ),
        (
            {"named_patterns": ("words",), "addresses": "drop"},
            {"token_pattern": "whitespace"},
            "splits texts by the pattern 'whitespace'",
        ),
        (
            {"named_patterns": ("words",), "addresses": "drop"},
            {"addresses": "keep"},
            "keeps web and e-mail addresses as words",
        ),
    ],
)
def test_a_policy_says_how_texts_may_be_read(
    policy: dict[str, Any], rules: dict[str, Any], problem: str
) -> None:
    Policy(**policy).check_text("north", TextRules())
    with pytest.raises(PolicyError, match=problem):
        Policy(**policy).check_text("north", TextRules(**rules))


@pytest.mark.parametrize("pattern", [*PATTERNS, BEHIND])
def test_patterns_that_have_a_name_or_are_in_the_policy_are_allowed(pattern: str) -> None:
    Policy(token_patterns=() if pattern in PATTERNS else (pattern,)).check_text(
        "north", TextRules(token_pattern=pattern)
    )


NAMES = "Smith\n\nO\u2019Neill\nAnna  Meier-Huber\nIRMAK\n"
TEXTS = ["Smith's oak near Irmak and smithy", "O'Neill or anna, SMITH meier-huber-oak fir", "oak"]


@pytest.mark.parametrize("is_list", [False, True])
def test_names_are_counted_in_no_form(is_list: bool, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text(NAMES, "utf-8")
    (tmp_path / "policy.toml").write_text('never_words = "names.txt"')
    policy = Policy.read(tmp_path / "policy.toml")
    rules = TextRules(ngrams=(1, 2), token_pattern="lists" if is_list else "words")
    texts = [[*text.split(), text] for text in TEXTS] if is_list else TEXTS
    words = count_words(Corpus.of(texts), rules, names=policy.names_in(rules)).words
    more = ["and", "or"] if is_list else ["oak near"]
    assert {*words} == {"oak", "near", "smithy", "fir", *more}
    with pytest.raises(
        PolicyError, match="public words have a word of the policy's never_words"
    ) as caught:
        policy.check_text("north", rules, ["oak", "near smith"])
    assert "smith" not in str(caught.value)
    (tmp_path / "names.txt").unlink()
    with pytest.raises(StudyError, match=r"never_words .*names\.txt.* there is no such file"):
        policy.names_in(rules)


def test_the_stricter_of_the_policies_of_client_and_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("anna")
    (tmp_path / "b.txt").write_text("bert")
    digests = [f"{n:064x}" for n in range(3)]
    (tmp_path / "site.toml").write_text(
        'min_persons = 20\nmax_rounds = 9\nmethods = ["lda", "nmf"]\nnever_words = "a.txt"\n'
        f'min_persons_per_word = 2\ncounts_of_all = false\nknown_members = ["{digests[0]}"]\n'
        f'named_patterns = ["words"]\nmemory = "site"\naggregation = "secure"\n'
    )
    (tmp_path / "policy.toml").write_text(
        f'min_persons = 5\nmax_rounds = 4\nmethods = ["nmf", "flda"]\nknown_members = {digests}\n'
        'never_words = "b.txt"\nmin_clients_per_word = 3\nmemory = "mine"\ncounts_of_all = true\n'
    )
    assert Policy.of(None) == Policy()
    monkeypatch.setenv("FEDTOPICS_SITE_POLICY", str(tmp_path / "site.toml"))
    policy = Policy.of(tmp_path / "policy.toml")
    assert (
        policy
        == policy.at_site()
        == Policy(
            min_persons=20,
            max_rounds=4,
            methods=("nmf",),
            never_words=(str(tmp_path / "b.txt"), str(tmp_path / "a.txt")),
            min_persons_per_word=2,
            min_clients_per_word=3,
            counts_of_all=False,
            known_members=(digests[0],),
            named_patterns=("words",),
            memory=tmp_path / "site",
            aggregation="secure",
        )
    )
    assert "The site's policy applies too" in policy.described(seen=False)
    policy.check_roster("north", {"south": digests[0]}, digests[2], digests[2])
    with pytest.raises(PolicyError, match=r"of this site does not know .* south\. "):
        policy.check_roster("north", {"south": digests[1]}, digests[2], digests[2])
    monkeypatch.setenv("FEDTOPICS_SITE_POLICY", str(tmp_path / "nowhere.toml"))
    with pytest.raises(StudyError, match="there is no such file"):
        Policy.of(None)


@pytest.mark.parametrize(
    "policy", [Policy(aggregation="secure"), Policy(min_persons_in_sum=1000)], ids=str
)
def test_required_secure_aggregation(policy: Policy) -> None:
    policy.check_aggregation("north", True)
    with pytest.raises(PolicyError, match=r"'north' requires secure .*\"secure\" in the study\."):
        policy.check_aggregation("north", False)


def test_a_policy_pins_certificates(tmp_path: Path) -> None:
    names = ("north", "south", "server")
    keys = {name: Key.create(tmp_path / "keys" / name, name) for name in names}
    digests = {name: certificate_fingerprint(key.certificate) for name, key in keys.items()}
    path = tmp_path / "policy.toml"
    study = "ab" * 32
    path.write_text('known_members = "keys"')
    Policy.read(path).check_roster("north", digests, study)
    path.write_text(f'known_members = ["{shown(keys["north"].certificate)}", "keys/south.pem"]')
    policy = Policy.read(path)
    policy.check_roster("north", {name: digests[name] for name in ("north", "south")}, study)
    unnamed = {"": digests["server"], "north": digests["north"]}
    unknown = r"of the server\. Nothing was sent; .* --accept-roster abab.*abab, or add"
    with pytest.raises(PolicyError, match=unknown):
        policy.check_roster("north", unnamed, study)
    policy.check_roster("north", unnamed, study, " ".join([study[:4].upper()] * 16))
    for one in (policy, Policy()):
        with pytest.raises(PolicyError, match="--accept-roster names the study cd"):
            one.check_roster("north", unnamed, study, "cd" * 32)
    path.write_text('known_members = "nowhere"')
    with pytest.raises(PolicyError, match=r"in .*nowhere, which .* names, cannot be read"):
        Policy.read(path).check_roster("north", digests, study)
