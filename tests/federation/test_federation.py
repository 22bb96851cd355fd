"""Studies with a server and members: both kinds of aggregation, over loopback."""

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, cast
from urllib.request import urlopen

import numpy as np
import pytest

from fedtopics import Corpus, Policy, Study, TopicModel, train
from fedtopics.errors import FederationError, PolicyError, RunError
from fedtopics.federation.join import join
from fedtopics.federation.metrics import serve_metrics
from fedtopics.federation.relay import lead_relay
from fedtopics.federation.serve import lead
from fedtopics.federation.study_tables import FederationSettings, ObserverData
from fedtopics.federation.verify import verify
from fedtopics.methods.gfedntm.client import Passes
from fedtopics.protocol.link import LinkError, Service
from fedtopics.protocol.messages import Answer, Ask, Part, Stop, Want, decode, encode
from fedtopics.protocol.relay import Relay, RelayService
from fedtopics.protocol.roster import Key
from fedtopics.report.run import LedgerFacts
from fedtopics.transport.grpc import TRAFFIC
from fedtopics.transport.loopback import LoopbackLink
from tests.helpers.background import HOST, Background, KilledError, Notes, until
from tests.helpers.federation import ANY_WORDS, assert_same_bits, study, subjects, tokens_of
from tests.helpers.full_disk import FullDisk
from tests.helpers.grpc_federation import Outcome, Partner, federated, keys_of, part_of, signed
from tests.helpers.private import open_to_others
from tests.helpers.services import free_port

SIZES = {"north": 40, "east": 30, "south": 50}
USUAL = Policy(min_persons=10, min_persons_per_word=2, min_clients_in_sum=2)
PATIENT = FederationSettings(
    quorum=2, outliers="none", round_timeout=60, join_timeout=60, quorum_timeout=60
)
ROUNDS = {"plain": 4, "secure": 50}
METRICS = (
    "waiting_since_seconds", "refusals_total", "failed", "finished", "rounds", "rounds_planned",
)  # fmt: skip
PART_OF_B = Part(
    run=b"", step=0, transcript=b"", function="f", kind="call", layout=b"", name="b", key=b""
)
CANARIES = ("quetzalcoatl", "zanzibarfigs", "xylophagous")


def planned(aggregation: str = "plain", *, federation: Any = None, **method: object) -> Study:
    """A study of four rounds; with plain aggregation a server that waits, unless it has rules."""
    settings = PATIENT if aggregation == "plain" else FederationSettings()
    if federation and aggregation == "plain":
        settings = PATIENT.model_copy(update=federation)
    return study(**{"max_rounds": 4, **method}).model_copy(
        update={"federation": settings, "aggregation": aggregation}
    )


def with_canaries() -> dict[str, Corpus]:
    """Documents in which a canary stands once a client, and some that are empty."""
    corpora = {}
    for (name, corpus), canary in zip(subjects(SIZES).items(), CANARIES, strict=True):
        documents = [list(words) for words in corpus.documents.to_pylist()]
        documents[7].append(canary)
        corpora[name] = Corpus.of([[], *documents, []])
    return corpora


def content(folder: Path) -> bytes:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return b"".join(path.read_bytes() for path in files)


@pytest.fixture(scope="module", params=["plain", "secure"])
def finished(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Outcome]:
    kind = request.param
    folder = tmp_path_factory.mktemp(request.param)
    plan = planned(kind, max_rounds=ROUNDS[kind]).model_copy(update={"checkpoint_every": 2})
    return kind, folder, federated(plan, with_canaries(), folder, USUAL)


def test_all_members_have_one_model(finished: tuple[str, Path, Outcome]) -> None:
    kind, folder, outcome = finished
    first = folder / ("server" if kind == "plain" else "east") / "model"
    files = {path.name: path.read_bytes() for path in first.iterdir()}
    assert "model.safetensors" in files
    for name in SIZES:
        assert {
            path.name: path.read_bytes() for path in (folder / name / "model").iterdir()
        } == files
        assert_same_bits(TopicModel.from_pretrained(folder / name / "model"), outcome.model)
    assert sorted(outcome.events.of("finished")[0]["received"]) == sorted(SIZES)


def test_the_model_is_that_of_one_process(finished: tuple[str, Path, Outcome]) -> None:
    """To the bit with plain aggregation, but for rounding with secure aggregation."""
    kind, _, outcome = finished
    plan = planned(kind, max_rounds=ROUNDS[kind])
    here = train(plan, with_canaries(), policies=dict.fromkeys(SIZES, USUAL), at_once=False)
    if kind == "plain":
        assert_same_bits(outcome.model, here)
    assert outcome.model.vocabulary.words == here.vocabulary.words
    np.testing.assert_allclose(outcome.model.beta, here.beta, rtol=1e-5)  # 2e-6 are usual


def test_a_finished_member_needs_no_server(finished: tuple[str, Path, Outcome]) -> None:
    _, folder, outcome = finished
    part, events = part_of(Key.load(folder / "keys/north"), None, folder / "north")
    plan = Study.read(folder / "north/study.toml")
    assert_same_bits(cast(Any, join(part, plan, link=cast(Any, None))), outcome.model)
    assert [event["event"] for event in events] == ["already finished"]


def test_metrics_are_those_of_the_folder(finished: tuple[str, Path, Outcome]) -> None:
    kind, folder, outcome = finished
    port = free_port()
    TRAFFIC["sent"] += 17
    with serve_metrics(f"{HOST}:{port}", lambda: folder / "north"):
        with urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
            lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
        with pytest.raises(FederationError, match="Address already in use; choose another address"):
            serve_metrics(f"{HOST}:{port}", lambda: folder).__enter__()
    numbers = {name: float(lines[f"fedtopics_{name}"]) for name in METRICS}
    waits = {"waiting_since_seconds": 0, "refusals_total": 0, "failed": 0, "finished": 1}
    rounds = outcome.partners["north"].events.of("round")[-1]["round"]
    assert numbers == waits | {"rounds": rounds, "rounds_planned": ROUNDS[kind]}
    assert float(lines["fedtopics_bytes_sent_total"]) == TRAFFIC["sent"]
    # As no process works on the run, nobody is connected.
    assert float(lines['fedtopics_members{state="connected"}']) == 0
    assert float(lines['fedtopics_members{state="away"}']) == len(SIZES)
    assert not any(name in "".join(lines) for name in SIZES)
    with serve_metrics(f"{HOST}:{free_port()}", lambda: folder / "nothing"):
        pass  # which has not begun


def test_a_refusal_is_shown_to_others_at_once() -> None:
    service = RelayService(Relay(["a", "b"], b"", lambda file: None), 1000)
    service.say("b", encode(PART_OF_B))
    waiting = Background(lambda: service.ask("b", encode(Ask(b"", 0, "part", b""))))
    until(lambda: "b" in service.present())
    LoopbackLink(service, "a").ask(
        encode(Ask(b"", 0, "refused", b"", "its policy refuses (max_rounds)"))
    )
    assert decode(waiting.result(), Answer).waiting == {
        "a": "ended: its policy refuses (max_rounds)"
    }


def test_the_ledgers_have_every_update(finished: tuple[str, Path, Outcome]) -> None:
    kind, folder, outcome = finished
    loss = ROUNDS[kind]
    twice = 2 * ROUNDS[kind]
    expected = {
        "vocabulary": 1,
        "document_counts": 1,
        "batch_sums": twice,
        "topic_gradients": loss,
        "weight_gradients": twice,
        "topic_shares": 1,
        "word_sums": 1,
        "word_pairs": 1,
    }
    if kind == "secure":  # groups are counted before they are summed
        expected |= {"client sizes": 1, "model: digest": 1, "word_sums": 2}
        expected |= {f"vocabulary: {stage}": 1 for stage in ("table", "words", "counts")}
    for name in SIZES:
        rows = {
            row["function"]: row for row in LedgerFacts.read(folder / name / "ledger.jsonl").rows
        }
        assert {
            function: row["replies"] for function, row in rows.items() if row["replies"]
        } == expected
        assert [check for check in verify(folder / name) if check.holds is False] == []
        calls = [event["function"] for event in outcome.partners[name].events.of("call")]
        assert all(expected[f] == calls.count(f) for f in calls)


def test_what_few_documents_have_is_nowhere_else(finished: tuple[str, Path, Outcome]) -> None:
    kind, folder, _ = finished
    server = content(folder / "server")
    assert (b"north1" in server) == (kind == "plain")
    for canary in CANARIES:
        assert canary.encode() not in server
        for name in SIZES:
            assert canary.encode() not in content(folder / name)


def test_the_relay_has_no_word_and_no_number(tmp_path: Path) -> None:
    """Its folder and everything that members say hold nothing but noise and names."""
    heard = bytearray()
    say = LoopbackLink.say

    @wraps(say)
    def overheard(self: LoopbackLink, message: bytes) -> None:
        heard.extend(message)
        say(self, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopbackLink, "say", overheard)
        federated(planned("secure", max_rounds=1), with_canaries(), tmp_path, USUAL)
    assert len(heard) > 200_000
    assert open_to_others(tmp_path / "server") == []
    everything = bytes(heard) + content(tmp_path / "server")
    for word in ("common1", "north1", "east1", "south1", *CANARIES):
        assert word.encode() not in everything


class Scene:
    """A study whose server and members can be ended and started again."""

    def __init__(self, plan: Study, folder: Path, link: Any = None) -> None:
        self._link = link or _Late
        self.corpora = subjects(SIZES)
        self.folder = folder
        self.keys = keys_of(folder / "keys", *SIZES, "server")
        self.plan = signed(plan.with_clients(SIZES), self.keys)
        self.service: Any = None
        self.events = Notes()
        self.partners: dict[str, Partner] = {}

    def serve(self) -> Background:
        self.service = None

        @contextmanager
        def listen(service: Service, notify: Any) -> Iterator[None]:
            self.service = service
            yield

        plan = self.plan
        folder = self.folder / "server"
        events = self.events
        if plan.is_secure:
            work = Background(lambda: lead_relay(plan, folder, listen, events))
        else:
            work = Background(lambda: lead(plan, folder, listen, events.append))
        until(lambda: self.service is not None or not work.running)
        return work

    def join(self, name: str, calls: float = math.inf) -> Partner:
        """Start a member, which is killed after so many calls or in the middle of one."""
        part, events = part_of(self.keys[name], self.corpora.get(name), self.folder / name, USUAL)
        self.partners[name] = Partner(part, self.plan, self._link(self, name), events, calls=calls)
        return self.partners[name]

    def join_all(self) -> list[Partner]:
        return [self.join(name) for name in SIZES]


class _Late:
    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name

    def __getattr__(self, method: str) -> Any:
        return getattr(LoopbackLink(self._scene.service, self._name), method)


def test_an_observer_has_the_model_and_contributes_nothing(tmp_path: Path) -> None:
    scene = Scene(planned("secure"), tmp_path)
    scene.keys |= keys_of(tmp_path / "keys", "desk")
    watcher = ObserverData(certificate=scene.keys["desk"].certificate.decode())
    scene.plan = scene.plan.model_copy(update={"observers": {"desk": watcher}})
    server = scene.serve()
    partners = {name: scene.join(name) for name in (*SIZES, "desk")}
    models = {name: partner.result() for name, partner in partners.items()}
    server.result()
    assert_same_bits(models["desk"], models["north"])
    assert models["desk"].documents == SIZES
    assert not (tmp_path / "desk/ledger.jsonl").exists()
    quiet = federated(planned("secure"), scene.corpora, tmp_path / "quiet", USUAL).model
    np.testing.assert_allclose(models["desk"].beta, quiet.beta, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", ["plain", "secure"])
def test_a_member_killed_in_every_step_has_the_same_model(kind: str, tmp_path: Path) -> None:
    plan = planned(kind, federation={"quorum": 3}, max_rounds=3)
    plan = plan.model_copy(update={"checkpoint_every": 2})
    scene = Scene(plan, tmp_path)
    server = scene.serve()
    others = [scene.join(name) for name in SIZES if name != "north"]
    most = {"plain": 40, "secure": 6}[kind]
    deaths = 0
    calls = 2.5
    while (error := scene.join("north", calls).error()) is not None:
        assert isinstance(error, KilledError)
        deaths = deaths + 1
        calls = 2.5 + (calls - 2) % most
    server.result()
    assert deaths > 20
    quiet = federated(plan, scene.corpora, tmp_path / "quiet", USUAL).model
    for partner in (*others, scene.partners["north"]):
        if kind == "plain":
            assert_same_bits(partner.result(), quiet)
        np.testing.assert_allclose(partner.result().beta, quiet.beta, rtol=1e-4, atol=1e-7)


def test_a_defect_of_a_member_stops_a_secure_run_and_nobody_learns_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = Passes.topic_gradients

    @wraps(Passes.topic_gradients)
    def raises(self: Passes, *given: Any, **named: Any) -> dict[str, Any]:
        if self.client.name == "south":
            raise ValueError(f"a document: {CANARIES[2]}")
        return loss(self, *given, **named)

    monkeypatch.setattr(Passes, "topic_gradients", raises)
    scene = Scene(planned("secure"), tmp_path)
    scene.serve()
    scene.join_all()
    errors = {name: partner.error() for name, partner in scene.partners.items()}
    for name, error in errors.items():
        assert isinstance(error, FederationError), name
        assert "by south: its software has a defect" in str(error)
    told = json.dumps([partner.events for partner in scene.partners.values()], default=str)
    everything = told + str(errors) + content(tmp_path / "server").decode("latin-1")
    assert "a document" not in everything
    assert not any(canary in everything for canary in CANARIES)


@pytest.mark.parametrize("kind", ["plain", "secure"])
def test_a_policy_refuses_in_the_middle_and_the_server_learns_only_that(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Passes.batch_sums

    @wraps(Passes.batch_sums)
    def of_few(self: Passes, *given: Any, **named: Any) -> dict[str, Any]:
        reply = forward(self, *given, **named)
        return reply | {"documents": 7} if self.client.name == "north" else reply

    monkeypatch.setattr(Passes, "batch_sums", of_few)
    scene = Scene(planned(kind, federation={"round_timeout": 2.0}), tmp_path)
    scene.serve()
    scene.join_all()
    error = scene.partners["north"].error()
    assert isinstance(error, PolicyError)
    assert str(error) == (
        "The reply to 'batch_sums' of client 'north' sums over documents of 7 persons, but its "
        "policy requires 10; give the client documents of more persons."
    )
    if kind == "secure":
        assert "by north: its policy refuses" in str(scene.partners["east"].error())
    else:
        scene.partners["east"].result()
        assert scene.events.of("round")[-1]["clients"] == ["east", "south"]
    assert "batch_sums" not in {
        row["function"] for row in LedgerFacts.read(tmp_path / "north/ledger.jsonl").rows
    }


@pytest.mark.parametrize("kind", ["plain", "secure"])
def test_members_with_different_studies_stop_and_say_so(kind: str, tmp_path: Path) -> None:
    scene = Scene(planned(kind, max_rounds=3), tmp_path)
    server = scene.serve()
    other = signed(planned(kind, max_rounds=5).with_clients(SIZES), scene.keys)
    for name in ("east", "south") if kind == "secure" else ():
        scene.join(name)
    part, events = part_of(scene.keys["north"], scene.corpora["north"], tmp_path / "north", USUAL)
    error = Partner(part, other, _Late(scene, "north"), events).error()
    if kind == "secure":
        assert isinstance(error, FederationError)
        assert "its study or software differs" in str(scene.partners["east"].error())
        until(lambda: scene.events.of("halted"))
        scene.partners["south"].error()
        shutil.rmtree(tmp_path / "north")
        partners = scene.join_all()  # with one study now, and the same server
        assert [partner.result().documents for partner in partners] == [SIZES] * 3
        server.result()
        lead_relay(scene.plan, tmp_path / "server", None, scene.events)  # type: ignore[arg-type]
        assert scene.events[-1]["event"] == "already finished"
    else:
        assert other.fingerprint in str(error)
        assert scene.plan.fingerprint in str(error)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtopics.waiting.AWAY", 2.0)


CHANGES = {
    "fewer": lambda corpus: corpus.take(range(len(corpus) - 1)),
    "one for another": lambda corpus: corpus.take([0, 0, *range(2, len(corpus))]),
    "another order": lambda corpus: corpus.take(range(len(corpus))[::-1]),
    "another word": lambda corpus: Corpus.of([["word"], *tokens_of(corpus)[1:]]),
    "other ends of words": lambda corpus: Corpus.of(
        [["".join(tokens_of(corpus)[0])], *tokens_of(corpus)[1:]]
    ),
}


@pytest.mark.parametrize("kind", ["plain", "secure"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_run_goes_on_with_the_documents_that_it_began_with(
    kind: str, change: str, tmp_path: Path
) -> None:
    scene = Scene(planned(kind, federation={"quorum": 3}, max_rounds=2), tmp_path)
    server = scene.serve()
    for name in SIZES:
        scene.join(name, calls=6 if name == "north" else math.inf)
    assert isinstance(scene.partners["north"].error(), KilledError)
    corpus = scene.corpora["north"]
    scene.corpora["north"] = CHANGES[change](corpus)
    error = scene.join("north").error()
    assert isinstance(error, RunError)
    assert "Nothing was sent" in str(error) or "needs the same documents" in str(error)
    if kind == "secure":
        told = scene.partners["east"].events
        why = "'north': 'ended: its documents or its run folder are not those with which it began'"
        until(lambda: why in str(told.of("waits for")), seconds=40)
    # Documents that are new are not in this run.
    scene.corpora["north"] = Corpus.of([*tokens_of(corpus), ["new", "words"]])
    scene.join("north")
    assert [partner.result().documents for partner in scene.partners.values()] == [SIZES] * 3
    server.result()


def test_who_sent_its_part_and_has_not_asked_learns_why_the_run_stopped() -> None:
    relay = Relay(["a", "b", "c"], b"", bytes)
    relay.say("b", encode(PART_OF_B))
    relay.ask("c", Ask(b"of c", 0, "compute", b""))
    relay.ask("c", Ask(b"also of c", 0, "compute", b""))  # another process with the same key
    relay.say("a", encode(Stop("a", b"of a", b"", 0, "its software has a defect")))
    for name, process in (("b", b"of b"), ("c", b"of c"), ("c", b"also of c")):
        answer = relay.ask(name, Ask(process, 0, "part", b""))
        assert answer is not None
        assert answer.message == Stop("a", b"of a", b"", 0, "its software has a defect")
    # A process that starts later waits for the one that stopped, and sees why.
    assert relay.ask("b", Ask(b"later", 0, "part", b"")) == Answer(Want("part"))
    service = RelayService(relay, 1000)
    assert service.waiting()[1]["a"] == "ended: its software has a defect"
    relay.ask("a", Ask(b"again", 0, "compute", b""))
    assert service.waiting()[1]["a"] == "not connected yet"


def test_a_member_that_had_the_model_does_not_wait_for_a_server_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(planned("secure", max_rounds=2), tmp_path)
    server = scene.serve()
    scene.join_all()
    server.result()
    until(lambda: (tmp_path / "north/state/done").exists())
    shutil.rmtree(tmp_path / "north")
    part, _ = part_of(scene.keys["north"], scene.corpora["north"], tmp_path / "north", USUAL)
    monkeypatch.setattr("fedtopics.waiting.ENDED_SERVER", 0.5)
    with pytest.raises(
        RunError, match=r"member finished the study on 20.*, but .* does not contain"
    ):
        join(part, scene.plan)


class _Failing(_Late):
    """A link over which a server whose disk is full does what one behind gRPC does."""

    def __getattr__(self, method: str) -> Any:
        def call(*given: Any) -> Any:
            if self._scene.service is None:
                raise LinkError("there is no server")
            service = self._scene.service
            try:
                return getattr(LoopbackLink(service, self._name), method)(*given)
            except OSError as error:
                service.fail(f"the server failed: {error.strerror}")
                raise LinkError("the server failed") from None

        return call


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
@pytest.mark.parametrize("whose", ["north", "server"])
@pytest.mark.parametrize("kind", ["plain", "secure"])
def test_each_write_fails_once_and_the_model_is_the_same(
    kind: str, whose: str, torn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_RETRY", "LAST_RETRY", "NO_NEWS", "ASK_HELD", "MODEL_FETCHED"):
        monkeypatch.setattr(f"fedtopics.waiting.{name}", 0.02)
    plan = Study.make(
        method={"name": "lda", "n_components": 2, "max_rounds": 2, "coherence": "nothing"},
        vocabulary=ANY_WORDS,
        checkpoint_every=1,
        aggregation=kind,
        federation=PATIENT.model_copy(update={"quorum": 3, "quorum_timeout": 3600})
        if kind == "plain"
        else {},
    )
    scene = Scene(plan, tmp_path, _Failing)

    errors = []
    with monkeypatch.context() as patch:
        disk = FullDisk(patch, lambda path: whose in path.parts, torn)
        server = scene.serve()
        scene.join_all()
        work = server if whose == "server" else scene.partners["north"]
        while (error := work.error()) is not None:
            assert isinstance(error, OSError) or "the same command again" in str(error)
            errors.append(error)
            disk.restart()
            work = scene.serve() if whose == "server" else scene.join("north")
    assert len(errors) >= 10
    if whose == "north":
        told = scene.partners["east"].events if kind == "secure" else scene.events
        assert "its disk is full, or cannot be written" in str(told)
    models = [scene.partners[name].result() for name in SIZES]
    quiet = federated(plan, scene.corpora, tmp_path / "quiet", USUAL).model
    for model in models:
        np.testing.assert_array_equal(model.beta, quiet.beta)
