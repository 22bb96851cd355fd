"""The memory of releases: what combinations of totals are over, and what it costs."""

import re
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.disclosure.releases import Scenario, simulated
from fedtopics import Corpus, Policy, Study
from fedtopics.errors import PolicyError, RunError, StudyError
from fedtopics.federation.ledger import lines_of
from fedtopics.federation.memory import Choice, Memory, Release, default_place, letters_of
from fedtopics.federation.participant import Participation
from fedtopics.protocol.roster import Key
from fedtopics.text.growing import Follow
from fedtopics.text.tables import Columns
from tests.helpers.command_line import Done, Refused
from tests.helpers.grpc_federation import federated, keys_of, signed
from tests.helpers.models import made

LEAST = 10
Documents = frozenset[tuple[Any, ...]]


def documents(first: int, end: int, letters: int = 3, text: str = "", name: str = "") -> Documents:
    """Letters of persons: what cleaning adds to a text, what stands before a name, and numbers."""
    return frozenset(product([text], [name], range(first, end), range(letters)))


ALL = documents(0, 400)
OF_SEVEN = documents(7, 8)
TWO_LEFT = ALL - documents(0, 2)
FIRST_HALF = documents(0, 200)
FIRST_FEW = documents(0, 15)
CLEANED = documents(0, 400, text="cleaned")
RENAMED = documents(0, 400, name="new")
BOTH_CHANGED = documents(0, 400, text="cleaned", name="new")
# Documents of each release, and how few persons some combination is over without the rule.
RELEASES: dict[str, tuple[int, list[Documents]]] = {
    "one document removed": (1, [ALL, ALL - documents(7, 8, 1)]),
    "a person removed": (1, [ALL, ALL - OF_SEVEN]),
    "a person of twelve letters removed": (1, [ALL | documents(7, 8, 12), ALL - OF_SEVEN]),
    "two removals that differ by one": (1, [ALL, ALL - FIRST_FEW, ALL - FIRST_FEW | OF_SEVEN]),
    "halves, and the year": (1, [FIRST_HALF, ALL - FIRST_HALF - {("", "", 399, 0)}, ALL]),
    "quarters, and the year": (
        1,
        [FIRST_HALF, documents(200, 300), documents(300, 350), documents(350, 399), ALL],
    ),
    "one goes, twenty come": (21, [documents(0, 380), ALL - OF_SEVEN]),
    "new names, one gone": (1, [ALL, RENAMED - documents(7, 8, name="new")]),
    "new names, one letter gone": (1, [ALL, RENAMED - {("", "new", 7, 0)}]),
    "fifty come": (50, [documents(0, 350), ALL]),
    "she comes back": (1, [ALL, ALL - OF_SEVEN, ALL]),
}


def corpus_of(wanted: Documents, seed: int = 0) -> Corpus:
    ordered = np.random.default_rng(seed).permutation(sorted(wanted))
    texts = [f"Letter {number} of {person} {text}" for text, _, person, number in ordered]
    persons = [f"{name}{person}" for _, name, person, _ in ordered]
    return replace(Corpus.of(texts), persons=pa.chunked_array([persons]))


def released(memory: Memory, corpus: Corpus, **how: Any) -> Choice:
    study = str(len(memory.header.releases))
    choice = memory.choose(corpus, LEAST, study, **how)
    memory.record(choice, Release(study=study))
    return choice


def persons_in(corpus: Corpus, choice: Choice) -> set[str]:
    return {name.removeprefix("new") for name in corpus.take(choice.rows).persons.to_pylist()}


def fewest_persons(corpora: list[Corpus]) -> int:
    """The fewest persons, by true letters, that a combination of the releases' totals is over."""
    releases = [
        {tuple(text.split()[1:4:2]) for text in corpus.documents.to_pylist()} for corpus in corpora
    ]
    groups = defaultdict(set)  # persons, by the releases that a letter is in
    for letter in set[Any]().union(*releases):
        groups[tuple(letter in release for release in releases)].add(letter[1])
    totals = [
        set[Any]().union(*(groups[places] for places in groups if np.dot(places, weights)))
        for weights in product(range(-2, 3), repeat=len(releases))
    ]
    return min(len(persons) for persons in totals if persons)


def fewest_with_rule(releases: list[Documents], **how: Any) -> int:
    memory = Memory()
    corpora = [corpus_of(wanted, seed) for seed, wanted in enumerate(releases)]
    return fewest_persons([corpus.take(released(memory, corpus, **how).rows) for corpus in corpora])


@pytest.mark.parametrize(("without_rule", "releases"), RELEASES.values(), ids=RELEASES)
def test_no_combination_of_releases_is_over_few_persons(
    without_rule: int, releases: list[Documents]
) -> None:
    assert fewest_persons([corpus_of(wanted) for wanted in releases]) == without_rule
    assert fewest_with_rule(releases) >= LEAST


@pytest.mark.parametrize(
    ("second", "stops"),
    [
        (CLEANED - documents(7, 8, text="cleaned"), True),
        (CLEANED - {("cleaned", "", 7, 0)}, True),
        (BOTH_CHANGED - documents(7, 8, text="cleaned", name="new"), False),
    ],
    ids=["one gone", "one letter gone", "names changed too"],
)
def test_changed_texts_stop_a_run_if_names_are_the_same(second: Documents, stops: bool) -> None:
    """Texts and names together stay open, and so does a wrong answer."""
    message = "Of the texts of persons in earlier runs, 100% changed since 20"
    with pytest.raises(PolicyError, match=message) if stops else nullcontext():
        assert fewest_with_rule([ALL, second]) == 1
    assert fewest_with_rule([ALL, second], changed=True) == 1


LATE = documents(500, 507, 6)


@pytest.mark.parametrize(
    ("once", "releases", "refused", "why"),
    [
        (
            False,
            [
                (ALL, 1200, ""),
                (
                    TWO_LEFT | LATE,
                    1200 - 30,
                    "42 documents of 7 new persons wait (10 are needed). 2 persons have left; 8 "
                    "others, drawn by lot, leave with them. In all, 24 documents are put aside.",
                ),
                # Those are put aside for good; those who waited come.
                (
                    TWO_LEFT | LATE | documents(510, 513, 1),
                    1200 - 30 + 42 + 3,
                    "In all, 24 documents are put aside.",
                ),
            ],
            documents(600, 602),
            "6 documents of 2 new persons wait",
        ),
        (
            False,
            [
                (FIRST_FEW, 45, ""),
                (ALL - FIRST_FEW, 1200 - 45, ""),
                (TWO_LEFT, 1200 - 45, "In all, 39 documents are put aside."),
            ],
            documents(0, 2),
            "None of these documents can be used",
        ),
        (
            True,
            [
                (FIRST_HALF, 600, ""),
                (ALL, 600, "In all, 600 documents were in earlier runs, or are put aside."),
            ],
            ALL | documents(500, 509),
            "None of these documents can be used",
        ),
    ],
    ids=["waiting and company", "a remainder that is too small", "a model that is continued"],
)
def test_numbers_of_documents(
    once: bool, releases: list[tuple[Documents, int, str]], refused: Documents, why: str
) -> None:
    memory = Memory()
    for wanted, rows, text in releases:
        choice = released(memory, corpus_of(wanted), once=once)
        assert (len(choice.rows), choice.text) == (rows, text)
    with pytest.raises(PolicyError, match=why):
        released(memory, corpus_of(refused), once=once)


def test_orders_names_and_other_columns_play_no_role() -> None:
    memory = Memory()
    released(memory, corpus_of(ALL))
    corpus = corpus_of(ALL - OF_SEVEN, seed=1)
    loud = Corpus.of([f"{text.upper()} !" for text in corpus.documents.to_pylist()])
    first, *others = [
        persons_in(same, memory.choose(same, LEAST, "second"))
        for same in (corpus, replace(loud, persons=corpus.persons), corpus_of(ALL - OF_SEVEN))
    ]
    assert len(first) == 390
    assert others == [first, first]
    assert letters_of("E\u0301t\u00c9 \u2013 2. \u2603") == letters_of("\u00e9t\u00e9 2")
    assert letters_of("\u00e9t\u00e9 2") != letters_of("ete 2")


def test_equal_texts_are_numbered_and_empty_ones_count_as_nobody() -> None:
    memory = Memory()
    corpus = Corpus.of(["thank you"] * 12 + [" "] * 5)
    assert released(memory, corpus).rows.tolist() == list(range(17))
    assert len({*memory.texts.tolist()}) == 12
    with pytest.raises(PolicyError, match="9 documents that are new wait"):
        released(Memory(), corpus.take(range(3, 17)))
    with pytest.raises(PolicyError, match="None of these documents"):  # 11 stay, but one left
        released(memory, corpus.take(range(1, 10)))


def test_a_person_who_is_erased_is_in_no_further_release() -> None:
    memory = Memory()
    released(memory, corpus_of(ALL))
    assert memory.erase("7") == (3, 1)
    assert memory.erase("nobody") == (0, 0)
    assert Memory().erase("\udcff") == (0, 0)
    with pytest.raises(RunError, match="missing or erased"):
        memory.choose(corpus_of(ALL), LEAST, "0")
    for corpus in map(corpus_of, (ALL, ALL - OF_SEVEN, RENAMED)):
        names = persons_in(corpus, memory.choose(corpus, LEAST, "second"))
        assert len(names) == 390
        assert "7" not in names


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Key]:
    return keys_of(tmp_path, "north", "south", "west", "server")


def study_of(keys: Mapping[str, Key], name: str = "lda", **changes: Any) -> Study:
    return signed(Study.make(method={"name": name}, **changes), keys)


def begin(
    keys: Mapping[str, Key],
    seed: int = 0,
    wanted: Documents = ALL,
    policy: Policy | None = None,
    text: Any = None,
    vocabulary: Any = None,
    **more: Any,
) -> int:
    """Begin a run as a member does; return how many documents it uses."""
    key = keys["north"]
    study = study_of(keys, seed=seed, text=text or {}, vocabulary=vocabulary or {})
    out = key.folder.parent / f"out {seed}"
    with closing(Participation(key, corpus_of(wanted), policy or Policy(), out, **more)) as part:
        part.review(study)
        part.consider(study, part.state_folder(study))
    return 0 if part.training is None else len(part.training)


def test_a_resumed_run_is_the_same_release(keys: dict[str, Key]) -> None:
    begin(keys)
    place = default_place("north")
    with pytest.raises(RunError, match="texts or their order have changed"):
        begin(keys, wanted=ALL | documents(500, 600, 1))  # which shuffles all of them
    assert begin(keys) == 1200
    assert len(Memory.read(place).header.releases) == 1
    with pytest.raises(RunError, match="needs the same documents"):
        begin(keys, wanted=ALL - OF_SEVEN)
    assert place.stat().st_mode & 0o777 == 0o600


def test_copies_of_the_key_and_other_names_of_the_policy(
    keys: dict[str, Key], tmp_path: Path
) -> None:
    (tmp_path / "copied").mkdir()
    copied = keys | {"north": replace(keys["north"], folder=tmp_path / "copied/north")}
    for seed, who, wanted, used in [(0, keys, ALL, 1200), (1, copied, ALL - OF_SEVEN, 1170)]:
        (tmp_path / f"{seed}.toml").write_text('memory = "shared memory"\n')
        assert begin(who, seed, wanted, Policy.read(tmp_path / f"{seed}.toml")) == used
    assert (tmp_path / "shared memory").exists()
    (tmp_path / "old.toml").write_text('account = "a"\n')
    with pytest.raises(StudyError, match="there is no key 'account'; use memory"):
        Policy.read(tmp_path / "old.toml")


def test_a_memory_that_is_lost_or_damaged(keys: dict[str, Key], tmp_path: Path) -> None:
    begin(keys)
    place = default_place("north")
    content = place.read_bytes()
    place.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RunError, match="put it back from a copy"):
        begin(keys, 1, first_release=True)
    place.unlink()
    with pytest.raises(PolicyError, match="add --first-release"):
        begin(keys, 1)
    begin(keys, 1, first_release=True)
    assert next(lines_of(tmp_path / "out 1/ledger.jsonl")).content["confirmed"] == ["first release"]
    assert Memory.read(place).header.releases[0].confirmed == ("first release",)
    begin(keys, 2)


def test_other_members_are_noticed_by_documents(keys: dict[str, Key]) -> None:
    begin(keys)
    del keys["west"]
    plain = Policy(min_persons=10, min_clients_in_sum=2)
    for wanted in (ALL, ALL - OF_SEVEN, FIRST_HALF):
        with pytest.raises(PolicyError, match="were in a study with other members"):
            begin(keys, 1, wanted, plain)
    begin(keys, 2, documents(600, 700), plain)


FUNDED = {"funded": {"levels": ["no", "yes"]}}
COUNTY = {"county": {"levels": ["Cork", "Mayo"]}}
MONTHS = {"period": "month", "begin": "2024-01-01", "end": "2024-12-31"}
COMPARED: dict[str, Any] = {"over_time": MONTHS, "by": FUNDED | COUNTY, "effects": ["funded"]}


@pytest.mark.parametrize(
    "changes",
    [
        {"over_time": MONTHS | {"period": "week"}},
        {"over_time": MONTHS | {"begin": "2024-02-01"}},
        {"over_time": None},
        {"by": FUNDED},
        {"by": FUNDED | COUNTY | {"kind": {"levels": ["a"]}}},
        {"by": FUNDED | {"county": {"levels": ["Mayo"]}}},
        {"by": COUNTY | FUNDED},  # those that come first are shown
        {"effects": ["funded + county"]},
    ],
)
def test_other_groups_of_the_same_documents(keys: dict[str, Key], changes: dict[str, Any]) -> None:
    part = Participation(keys["north"], corpus_of(ALL), Policy(), None)
    study = signed(Study.make(method={"name": "lda"} | COMPARED), keys)
    earlier = [part._release(study)]
    part._check_earlier(study, earlier)
    part._check_earlier(study_of(keys), earlier)
    part._check_earlier(study, [part._release(study_of(keys))])
    later = COMPARED | {"effects": ["funded", "funded + county"]}
    part._check_earlier(signed(Study.make(method={"name": "lda"} | later), keys), earlier)
    other = signed(Study.make(method={"name": "lda"} | COMPARED | changes), keys)
    with pytest.raises(PolicyError, match="by time, funded, county, in another way"):
        part._check_earlier(other, earlier)


@pytest.mark.parametrize(
    "rules",
    [
        {"text": {"lowercase": False}},
        {"text": {"own_stop_words": ["letter"]}},
        {"vocabulary": {"min_persons_per_word": 6}},
    ],
    ids=str,
)
def test_other_rules_for_words_of_the_same_documents(keys: dict[str, Key], rules: Any) -> None:
    """Two totals would differ by single documents: such studies ask questions of one letter."""
    begin(keys)
    with pytest.raises(PolicyError, match=r"with another \[text\] or \[vocabulary\]"):
        begin(keys, 1, **rules)
    assert begin(keys, 1, texts_changed=True, **rules) == 1200
    assert begin(keys, 2, documents(600, 700), **rules) == 300


def test_the_same_study_with_another_model_is_another_release(keys: dict[str, Key]) -> None:
    """It would ask of the same documents which words of another dictionary they have."""
    first, other = (
        made(info={"method": "lda"}, weights={"pseudo_counts": np.full((5, 3), n)})
        for n in (1.0, 2.0)
    )
    begin(keys, start=first)
    assert begin(keys, start=first) == 1200, "it is resumed"
    with pytest.raises(PolicyError, match="None of these documents can be used"):
        begin(keys, start=other)


def test_who_leaves_equal_texts_behind_takes_company() -> None:
    """Of texts that many wrote, the last ones are missing, which are of others."""
    rng = np.random.default_rng(0)
    rows = [(person, n, rng.random() < 0.3) for person in range(60) for n in range(20)]
    texts = [f"thanks {n % 3}" if same else f"letter {person} {n}" for person, n, same in rows]
    persons = np.array([str(person) for person, *_ in rows])
    whole = replace(Corpus.of(texts), persons=pa.chunked_array([persons.tolist()]))
    memory = Memory()
    released(memory, whole)
    stay = np.flatnonzero(persons != "7")
    after = whole.take(stay).take(released(memory, whole.take(stay)).rows)
    assert len({*persons} - {*after.persons.to_pylist()}) == LEAST


def test_an_older_copy_of_the_memory_is_noticed(keys: dict[str, Key]) -> None:
    begin(keys)
    place = default_place("north")
    copy = place.read_bytes()
    begin(keys, 1)
    place.write_bytes(copy)
    with pytest.raises(PolicyError, match=r"of which the memory .* lacks 1"):
        begin(keys, 2, ALL - OF_SEVEN)


def test_who_cannot_follow_is_told_before_the_memory_is_written(
    keys: dict[str, Key], tmp_path: Path
) -> None:
    (tmp_path / "letters.jsonl").touch()
    growing = Follow(tmp_path / "letters.jsonl", Columns(text="text"), print)
    with pytest.raises(StudyError, match="leave out --follow"):
        begin(keys, growing=growing)
    assert begin(keys) == 1200


def test_documents_that_arrive_are_used_in_one_study(keys: dict[str, Key], tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    file.touch()
    growing = Follow(file, Columns(text="text"), print)
    part = Participation(keys["north"], None, Policy(), tmp_path / "out", growing=growing)
    arriving = part._arriving(study_of(keys, "flda", aggregation="plain"))
    assert arriving is not None
    for number in (30, 35):
        file.write_text("".join(f'{{"text": "letter {n}"}}\n' for n in range(number)))
        assert len(arriving()) == number
    with pytest.raises(PolicyError, match="In all, 35 documents are put aside"):
        Memory.read(default_place("north")).choose(growing(), LEAST, "another")


def test_rows_in_are_rows_out(tmp_path: Path) -> None:
    """Documents that wait are not trained on, but get topics, in their places."""
    rng = np.random.default_rng(0)
    texts = [
        " ".join(rng.choice(words.split(), 6))
        for words in ("oak elm ash fir", "ketch sloop yawl brig") * 32
    ]
    names = [str(row) for row in range(64)]
    corpus = replace(Corpus.of(texts), persons=pa.chunked_array([names]))
    one_new = replace(Corpus.of(["oak elm", *texts]), persons=pa.chunked_array([["new", *names]]))
    rules = Policy(min_clients_in_sum=2, min_persons=10)
    keys = keys_of(tmp_path, "north", "south", "server")
    method = {"name": "lda", "n_components": 2, "max_rounds": 3}
    for run, of_north in enumerate((corpus, one_new), start=1):
        outcome = federated(
            Study.make(method=method, aggregation="plain", run=run),
            {"north": of_north, "south": corpus},
            tmp_path / str(run),
            policies={
                name: rules.model_copy(update={"memory": tmp_path / f"memory of {name}"})
                for name in ("north", "south")
            },
            keys=keys,
        )
    part = outcome.partners["north"].part
    assert next(lines_of(part.out / "ledger.jsonl")).content["documents"] == 64
    topics = pq.read_table(part.out / "theta.parquet")["topic"].to_pylist()
    assert topics == outcome.model.transform(one_new).argmax(1).tolist()
    assert len(topics) == 65


@pytest.mark.parametrize(
    ("every", "stopped", "releases", "used"), [(1, 7, 18, 0.9), (3, 5, 6, 0.933)]
)
def test_three_years_of_releases(every: int, stopped: int, releases: int, used: float) -> None:
    """A smaller copy of the experiment."""
    cost = simulated(Scenario(start=500, new=10, returning=10, erased=0.5, months=18, every=every))
    assert (cost.stopped, cost.releases, round(cost.used, 3)) == (stopped, releases, used)


def test_forget_on_the_command_line(
    keys: dict[str, Key], tmp_path: Path, refused: Refused, done: Done
) -> None:
    begin(keys)
    assert re.search(
        r"Earlier runs \(1\) used 3 documents.*at least 10 persons in all",
        done("audit", "forget", "7", "--key", tmp_path / "north"),
        re.S,
    )
    assert begin(keys, 1) == 1200 - 30
    assert "add --key" in refused("audit", "forget", "7")


def test_answers_reach_flower_and_flare(tmp_path: Path) -> None:
    flower = pytest.importorskip("fedtopics.integrations.flower")
    flare = pytest.importorskip("fedtopics.integrations.flare")
    answers = {"first_release": True, "texts_changed": True}
    (tmp_path / "study.toml").write_text('name = "letters"\n')
    assert flower._node({"name": "north", **answers}, tmp_path / "study.toml").settings == answers
    assert answers.items() <= vars(flare.SiteSettings(**answers)).items()
