"""The study: one typed TOML file."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedtopics import Policy, Study
from fedtopics.errors import IdentityError, InputError, PolicyError, StudyError
from fedtopics.escaping import check_client_name, for_terminal
from fedtopics.federation.study import example_study, why_plain
from fedtopics.files import digest
from fedtopics.methods.gfedntm.client import GFedNTMClient
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.protocol.roster import Key
from fedtopics.text.vocabulary import VocabularyLimits
from fedtopics.text.words import RULES
from tests.helpers.federation import ANY_WORDS
from tests.helpers.studies import read


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sed = 1", "there is no key 'sed'; did you mean 'seed'"),
        ("[method]\ntopics = 5", "there is no key 'method.topics'"),
        ("[clients.a]\ndata = 'a'\ncolumn = 'x'", "there is no key 'clients.a.column'"),
        ('seed = "one"', "'seed' is 'one': Input should be a valid integer"),
        ("[method]\nname = 'gfedntm'\nhidden = [-1, 5]", "'method.hidden"),
        ("[method.stop_when]\npatience = 0", "patience is a setting of the methods"),
        ("[method.stop_when]\nlos = 0.5", "no stop rule 'los'; did you mean 'loss'"),
        ("[method]\nname = 'gfedntm'\nlearning_rate = inf", "'method.learning_rate' is inf"),
        ("[method]\nn_components = 1", "'method.n_components' is 1: .* greater than or equal to 2"),
        (
            "[method]\nname = 'gfedntm'\npreset = 'best'",
            "is 'best': .*'paper', 'avitm' or 'mixtures'",
        ),
        ("[method]\nname = 'gfedntm'\npreset = ['paper']", "'method.preset': Input should"),
        (
            "[text]\nstop_words = 'klingon'",
            "no stop words for 'klingon'; choose .* arabic, .*german",
        ),
        ("[text]\nversion = 1", "text.version = 1, but this fedtopics has version 4"),
        ("[method]\nname = 'gfedntm'\nnetwork = 'lda2vec'", "no network 'lda2vec'; choose from"),
        ("method = 'lda'", "'method' is 'lda': a method is a table with name"),
        ("[method]\nname = 'lda'\nnetwork = 'prodlda'", "there is no key 'method.network'"),
        ("[method]\nname = 'lda'\nalpha = -1", "'method.alpha' is -1"),
        ("[method]\ncoherence = 'sentences'", "'windows', 'documents' or 'nothing'"),
        ("[method]\nname = 'mixture'\nembedding.model = ''", "'method.embedding.model' is ''"),
        (
            "[method]\nname = 'mixture'\nembedding.dimension = 0",
            "'method.embedding.dimension' is 0",
        ),
        (
            "[method]\nname = 'mixture'\nembedding.size = 3",
            "there is no key 'method.embedding.size'",
        ),
        (
            "[method]\nname = 'fstc'\nnetwork.hiden = 3",
            "'method.network.hiden'; did you mean 'hidden'",
        ),
        ("[method]\nname = 'kmeans'\nstart.tries = 0", "'method.start.tries' is 0"),
        ("clients = 3", "'clients' is 3"),
        ("[clients]\na = 'a.csv'", r"each of the clients is a table, such as \[clients\.north\]"),
        ("seed = ", "Invalid value .* a line has the form KEY = VALUE"),
        (
            '[clients.a]\ndata = "C:\\Users\\a.csv"',
            r"line 2.*; write a path with / or in single quotes, as in data = 'C:\\texts\\a.csv'",
        ),
        (
            '[clients.a]\ndata = "D:\\letters.csv"',
            r"line 2.*; write a path with / or in single quotes",
        ),
        ('[clients."Köln"]\n[clients.b]', 'such as Koln, and name = "Köln" in its table'),
        (
            "differential_privacy = {epsilon = 1}\n[method]\nname = 'lda'\n[method.over_time]\n"
            "begin = 2025-01-01\nend = 2025-02-01",
            "lda does not support differential privacy",
        ),
        (
            "[method.over_time]\nbegin = 0001-01-01\nend = 9999-12-31",
            "there are 119,990 levels or periods, more than 240; choose longer periods",
        ),
    ],
)
def test_unusable_study(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(StudyError, match=rf"The study .*study\.toml cannot be used: .*{message}"):
        read(tmp_path, content)


@pytest.mark.parametrize("name", ["", "a b", "../a", ".a", "a\n", "ä"])
def test_bad_client_names(name: str) -> None:
    with pytest.raises(StudyError, match="cannot name a client; use at most 64 letters of English"):
        check_client_name(name)
    with pytest.raises(StudyError, match="cannot name a client; use at most 64 letters of English"):
        Study.make(clients={name: {"data": "a.csv"}})


def test_fingerprint_is_of_what_is_agreed_on() -> None:
    clients = {"a": {"data": "a.csv"}, "b": {"data": "b.csv"}}
    first = Study.make(clients=clients).fingerprint
    same = [
        {"clients": {"b": {"data": "/else/b.parquet", "text": "body"}, "a": {"data": "a.csv"}}},
        {"clients": {"a": {"data": "a.csv", "policy": "p.toml"}, "b": {"data": "b.csv"}}},
        {"clients": clients, "name": "another"},
        {"clients": clients, "checkpoint_every": 7},
        {"clients": {"a": {"embedding": "e"}, "b": {"embedding_model": "/models/m"}}},
    ]
    others = [
        {"clients": {"a": {"data": "a.csv"}, "c": {"data": "b.csv"}}},
        {"clients": {"a": {"data": "a.csv"}}},
        {"clients": clients, "seed": 1},
        {"clients": clients, "method": {"n_components": 21}},
        {"clients": clients, "method": {"name": "gfedntm"}},
        {"clients": clients, "method": {"name": "mixture", "embedding": {"model": "b"}}},
        {"clients": clients, "method": {"coherence": "nothing"}},
        {"clients": clients, "text": {"lowercase": False}},
        {"clients": clients, "vocabulary": {"max_words": 10}},
    ]
    assert len(bytes.fromhex(first)) == 32, "all bits of a SHA-256"
    assert {Study.make(**given).fingerprint for given in same} == {first}
    assert len({first, *(Study.make(**given).fingerprint for given in others)}) == 10


def test_the_clients_of_a_run_are_part_of_the_fingerprint() -> None:
    named = Study.make(clients={"a": {"data": "a.csv"}, "b": {"data": "b.csv"}})
    assert Study().with_clients("ab").fingerprint == named.fingerprint
    assert Study().with_clients("a").fingerprint != Study().fingerprint
    assert named.with_clients("ac").clients["a"] == named.clients["a"]


def test_the_papers_preset() -> None:
    paper = Study.make(method={"name": "gfedntm", "preset": "paper"}).method
    assert (paper.learn_prior, paper.word_bias, paper.relevance) == (True, False, 1.0)
    assert (paper.dropout, paper.alpha) == (0.2, 1.0)
    assert (paper.norm, paper.optimizer, paper.batch_split) == ("local", "sgd", "fixed")
    changed = Study.make(method={"name": "gfedntm", "preset": "paper"}, vocabulary={"max_words": 9})
    assert changed.vocabulary == VocabularyLimits(**ANY_WORDS, max_words=9, max_document_share=1.0)
    assert GFedNTMSettings().relevance is None


def test_the_first_prodldas_preset() -> None:
    """The paper's network, trained as by default: what was preset "paper" at first."""
    avitm, paper = (GFedNTMSettings(preset=name) for name in ("avitm", "paper"))
    assert (avitm.norm, avitm.optimizer, avitm.learning_rate) == ("sync", "adam", 0.002)
    differing = {key for key, value in avitm if value != getattr(paper, key)}
    assert differing == {"preset", "norm", "optimizer", "learning_rate", "batch_split", "tolerance"}


def test_networks_that_see_an_embedding() -> None:
    seeing = {
        name: GFedNTMSettings(network=name).needed_embedding is not None
        for name in ("prodlda", "neurallda", "combinedtm", "zeroshottm")
    }
    assert seeing == {"prodlda": False, "neurallda": False, "combinedtm": True, "zeroshottm": True}


def test_how_often_which_function_is_called() -> None:
    def schedule(**method: Any) -> dict[str, str]:
        often = GFedNTMClient.in_study(GFedNTMSettings(**method))
        return dict(zip(often, map(str, often.values()), strict=True))

    assert schedule() == {
        "known_words": "once instead of vocabulary, if a model keeps its own words",
        "vocabulary": "once",
        "document_counts": "once",
        "batch_sums": "twice per round",
        "topic_gradients": "each round",
        "weight_gradients": "twice per round",
        "topic_shares": "once, at the end",
        "word_sums": "once, at the end",
        "gradients": "each round instead, in a study with a single client",
        "word_pairs": "once, at the end",
    }
    neurallda = schedule(network="neurallda", coherence="nothing")
    assert (neurallda["batch_sums"], neurallda["weight_gradients"]) == ("each round", "each round")
    assert "word_pairs" not in neurallda
    assert "batch_sums" not in schedule(network="neurallda", norm="server")


AGGREGATION: list[tuple[dict[str, Any], str, str]] = [  # settings, clients, why it is plain
    ({}, "abc", ""),
    ({"federation": {"outliers": "none"}}, "abc", ""),
    ({"method": {"clients_per_round": 3}}, "abcd", "clients_per_round gives totals of different"),
    ({}, "ab", "a round has fewer than 3 clients"),
    ({}, "", "a round has fewer than 3 clients"),
    ({"method": {"name": "flda"}}, "abc", "flda merges the updates of clients one by one"),
    ({"federation": {"outliers": "median"}}, "abc", 'federation.outliers = "median" needs'),
    ({"federation": {"outliers": "clip"}}, "abc", 'federation.outliers = "clip" needs single'),
    ({"aggregation": "plain"}, "abc", "the study sets it"),
]


def of_clients(names: str, **given: Any) -> Study:
    return Study.make(**given, clients={name: {} for name in names})


@pytest.mark.parametrize(("given", "clients", "why"), AGGREGATION)
def test_aggregation_is_secure_if_it_can_be(given: dict[str, Any], clients: str, why: str) -> None:
    study = of_clients(clients, **given)
    assert study.is_secure == (not why)
    assert why_plain(study).startswith(why)
    assert study.agreed.get("aggregation") == (None if why else "secure")
    assert (
        study.model_copy(update={"aggregation": "plain"}).fingerprint == study.fingerprint
    ) == bool(why)
    if why and "aggregation" not in given and "fewer" not in why:
        with pytest.raises(StudyError, match=f'aggregation = "secure" is not possible: {why}'):
            of_clients(clients, aggregation="secure", **given)


def test_fewer_than_three_clients_aggregate_securely_if_the_study_says_so() -> None:
    """Their policies decide: each of two can compute the other's update."""
    assert of_clients("ab", aggregation="secure").is_secure
    for policy in (Policy(), Policy(min_clients_in_sum=3)):
        with pytest.raises(PolicyError, match=r"over at least 3 clients, but a round .* has 2"):
            policy.in_study(True).check_study("a", "lda", 6, 30, clients=2)
    Policy(min_clients_in_sum=2).in_study(True).check_study("a", "lda", 6, 30, clients=2)
    Policy().in_study(False).check_study("a", "lda", 6, 300, clients=2)
    bound = {"method": {"name": "nmf"}, "differential_privacy": {"epsilon": 3}}
    with pytest.raises(StudyError, match="a round has fewer than 3 clients"):
        of_clients("ab", aggregation="secure", **bound)


@pytest.mark.parametrize("value", ["{a = 1}", "[]", "true", "nan", "2026-01-01", f'"{"x" * 3000}"'])
def test_a_value_of_a_wrong_kind_gets_one_sentence(value: str, tmp_path: Path) -> None:
    for key in ("method.name", "method", "text.stop_words", "clients", "server.certificate"):
        with pytest.raises(StudyError, match=r"study.toml cannot be used: .*\.$") as caught:
            read(tmp_path, f"{key} = {value}\n")
        assert len(str(caught.value)) < 1000


def test_members_with_other_rules_of_words_do_not_train_together() -> None:
    with pytest.raises(StudyError, match=f"text.version = {RULES + 1}, but this fedtopics"):
        Study.make(text={"version": RULES + 1})
    ours = Study.make(clients={"a": {}})
    first = dict(ours.agreed["text"])
    del first["version"]  # of the first rules, which had no number
    assert digest(json.dumps(ours.agreed | {"text": first}, sort_keys=True)) != ours.fingerprint


def test_another_run_of_a_study_has_another_digest() -> None:
    digests = [of_clients("abc", **given).fingerprint for given in ({}, {"run": 1}, {"run": 2})]
    assert digests[0] == digests[1] != digests[2]
    with pytest.raises(StudyError, match="'run' is 0"):
        Study.make(run=0)


CERTIFIED = """
[server]
address = "topics.example.org:7557"
certificate = "server.pem"
[clients.north]
certificate = "north.pem"
[clients.south]
certificate = "south.pem"
"""


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Key]:
    return {n: Key.create(tmp_path / n, n) for n in ("north", "south", "server")}


def test_certificates_are_part_of_the_digest(tmp_path: Path, keys: dict[str, Key]) -> None:
    study = read(tmp_path, CERTIFIED)
    assert study.roster is not None
    assert study.roster.names == ["north", "south"]
    assert study.roster.server == keys["server"].certificate
    assert study.fingerprint != Study().with_clients(["north", "south"]).fingerprint
    assert read(tmp_path, study.to_toml()) == study

    spaced = keys["north"].certificate.replace(b"\n", b"\r\n") + b"\r\n"
    (tmp_path / "north.pem").write_bytes(spaced)
    assert (
        read(tmp_path, CERTIFIED.replace("topics.example.org", "10.0.0.7")).fingerprint
        == study.fingerprint
    )
    for name in ("north", "server"):
        (tmp_path / f"{name}.pem").unlink()
        Key.create(tmp_path / "new" / name, name)
        (tmp_path / "new" / f"{name}.pem").rename(tmp_path / f"{name}.pem")
        assert read(tmp_path, CERTIFIED).fingerprint != study.fingerprint
        (tmp_path / f"{name}.pem").write_bytes(keys[name].certificate)
    assert read(tmp_path, CERTIFIED).fingerprint == study.fingerprint


def test_a_member_hosts_the_server(tmp_path: Path, keys: dict[str, Key]) -> None:
    content = CERTIFIED.replace('certificate = "server.pem"', 'host = "south"')
    study = read(tmp_path, f'{content}[observers.desk]\ncertificate = "server.pem"\n')
    with pytest.raises(IdentityError, match=r"certificate of 'desk' belongs to 'server'\."):
        _ = study.roster
    hosted = read(tmp_path, content).roster
    assert hosted is not None
    assert hosted.server == keys["south"].certificate


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('certificate = "south.pem"', "", "names no certificate of south; each member makes one"),
        ('certificate = "north.pem"', 'certificate = "no.pem"', "no.pem cannot be read: No such"),
        (
            "north.pem",
            "north/key.pem",
            "certificate of north is a private key, which must stay sec",
        ),
        ("north.pem", "study.toml", "The certificate of north is damaged, or not a certificate"),
        ('"server.pem"', '"server.pem"\nhost = "west"', "server.host = 'west' is not a member"),
        ("[clients.south]", "[observers.north]", "'north' is a client and an observer; remove one"),
        ("[clients.south]", "[observers]\nsouth = 3", r"each of the observers is a table, such as"),
        (
            '[server]\naddress = "topics.example.org:7557"',
            "[serv]",
            "no key 'serv'; did you mean 's",
        ),
    ],
)
def test_certificates_that_a_study_lacks(
    before: str, after: str, message: str, tmp_path: Path, keys: dict[str, Key]
) -> None:
    with pytest.raises(InputError, match=message) as error:
        _ = read(tmp_path, CERTIFIED.replace(before, after)).fingerprint
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"name": 'Ärzte "und" \\ Anwälte \U0001f333', "seed": 3},
        {"text": {"own_stop_words": ["".join(map(chr, range(1, 160)))]}, "seed": 2**63 - 1},
        {"text": {"own_stop_words": ["\u202e\u2028\U000e0041\uffff"]}},
        {"method": {"name": "gfedntm", "hidden": [5, 6], "preset": "paper", "relevance": 0.25}},
        {
            "method": {
                "name": "gfedntm",
                "preset": "paper",
                "learning_rate": 1e-5,
                "tolerance": 1e-9,
            }
        },
        {"method": {"name": "gfedntm", "optimizer": "fedadam", "local_steps": 3, "norm": "server"}},
        {"method": {"name": "gfedntm", "n_components": 7, "preset": "paper", "relevance": None}},
        {"method": {"name": "gfedntm", "network": "combinedtm", "max_rounds": 9, "relevance": 0.0}},
        {"method": {"name": "gfedntm", "network": "neurallda", "coherence": "documents"}},
        {"method": {"name": "fstc", "preset": "paper", "network": {"hidden": 8, "deletion": 0.5}}},
        {"method": {"name": "discriminative", "candidates": [2, 3]}},
        {
            "text": {"stop_words": "none", "own_stop_words": ["é", 'q"'], "ngrams": [1, 2]},
            "method": {
                "name": "mixture",
                "coherence": "documents",
                "embedding": {"model": "a/b", "dimension": 5},
            },
        },
        {"text": {"token_pattern": r"(?u)\b\w+'\"\b"}},
        {"vocabulary": {"min_clients_per_word": 2, "max_document_share": 0.125}},
        {
            "clients": {
                "north.1": {"data": "/data/a b.csv", "text": "Body", "policy": "/p.toml"},
                "2-South_": {"data": "/data", "tokens": "t", "id": "i", "label": "l"},
                "west": {"data": "/data", "embedding": "e", "embedding_model": "/models/b"},
            }
        },
    ],
)
def test_what_is_written_is_read_again(tmp_path: Path, given: dict[str, Any]) -> None:
    study = Study.make(**given)
    again = read(tmp_path, study.to_toml())
    assert for_terminal(study.to_toml()) == study.to_toml()
    assert again == study
    assert again.fingerprint == study.fingerprint
    assert again.to_toml() == study.to_toml()


def test_the_example_is_the_default(tmp_path: Path) -> None:
    example = read(tmp_path, example_study())
    names = ("north", "south")
    clients = {name: {"data": tmp_path / f"{name}.csv", "text": "text"} for name in names}
    assert example == Study.make(name="example", clients=clients)
    assert example.method == Study().method


def test_the_example_names_every_key(tmp_path: Path) -> None:
    uncommented = "\n".join(line.removeprefix("# ") for line in example_study().splitlines())
    for table in (Study().method, Study().text, Study().vocabulary):
        for key in type(table).model_fields:
            assert f"\n{key} = " in uncommented
