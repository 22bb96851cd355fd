"""What is changed in a run's records is found; what is not found is here as well."""

import hashlib
import json
import os
import re
import shutil
import ssl
from functools import partial
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import norm

from fedtopics import Corpus, Study
from fedtopics.contract.interfaces import Call, Position
from fedtopics.errors import DataError, IdentityError, RunError
from fedtopics.federation.after_run import delete_files
from fedtopics.federation.audit import Audit, allowed, audit, likelihood_ratios, rates
from fedtopics.federation.ledger import client_of_ledger, head_path
from fedtopics.federation.verify import verify
from fedtopics.privacy import Privacy
from fedtopics.report.run import LedgerFacts
from tests.helpers.federation import ANY_WORDS, subjects
from tests.helpers.keys import key_of
from tests.helpers.records import answered, opened, signed_by, written


@pytest.fixture(scope="module", params=["signed", "unsigned"])
def signer(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the client signs its ledger with, or nothing."""
    return signed_by("north") if request.param == "signed" else {}


@pytest.fixture(scope="module")
def original(signer: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger of a run, by whose folder each test takes a copy."""
    folder: Path = tmp_path_factory.mktemp("run")
    return written(folder / "original", **signer)


@pytest.fixture
def ledger(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original.parent, tmp_path / "run")
    return tmp_path / "run/ledger.jsonl"


def faults(ledger: Path, certificate: Path | None = None, head: str = "") -> list[str]:
    return [
        check.what for check in verify(ledger.parent, certificate, head) if check.holds is False
    ]


def lines_of(ledger: Path) -> list[bytes]:
    return ledger.read_bytes().splitlines(keepends=True)


def test_what_was_not_changed_holds(ledger: Path, signer: dict[str, Any]) -> None:
    checks = {check.what: check for check in verify(ledger.parent)}
    assert (b"signature" in head_path(ledger).read_bytes()) == bool(signer)
    assert [*checks] == ["lines", "end", "signature", "study", "file", "data sent", "privacy"]
    assert {name: check.holds for name, check in checks.items()} == {
        "lines": True,
        "end": True,
        "signature": True if signer else None,
        "study": True,
        "file": True,
        "data sent": True,
        "privacy": None,
    }
    assert "7 lines of" in checks["lines"].text
    assert client_of_ledger(ledger) == "north"
    assert LedgerFacts.read(ledger).rows[0]["totals"] == 2, "the other lines change no table"
    assert LedgerFacts.read(ledger).left == {1: 10, 2: 18}
    assert not LedgerFacts.read(ledger).seeded
    began = json.loads(lines_of(ledger)[0])
    assert (began["what"], began["documents"], began["text_bytes"]) == ("started", 2, 7 + 8)
    assert began["policy"]["min_persons_per_word"] == 5


def test_a_changed_byte_in_the_name_of_a_certificate(ledger: Path, signer: dict[str, Any]) -> None:
    if not signer:
        return  # no certificate
    content = ledger.read_text("utf-8")
    certificate = json.loads(content.splitlines()[0])["certificate"]
    der = ssl.PEM_cert_to_DER_cert(certificate)
    changed = ssl.DER_cert_to_PEM_cert(der.replace(b"north", b"no>th"))
    assert changed != certificate
    ledger.write_text(content.replace(json.dumps(certificate), json.dumps(changed)), "utf-8")
    assert "signature" in faults(ledger)


def test_any_byte_of_any_line(ledger: Path) -> None:
    rng = np.random.default_rng(0)
    content = ledger.read_bytes()
    ends = [i for i, byte in enumerate(content) if byte == ord("\n")]
    ends.append(content.index(b'"function"') + 1)  # of a row in the table of data sent
    for place in [*rng.choice(len(content), 60, replace=False), *ends]:
        changed = bytearray(content)
        changed[place] ^= int(rng.integers(1, 256))
        ledger.write_bytes(changed)
        assert faults(ledger), (place, content[place], changed[place])


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("theta", "records theta, .*the study"),
        ("document_counts", "records document_counts.* 802 bytes.* 125 "),
    ],
)
def test_what_the_study_does_not_send(function: str, says: str, tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.write_reply(
        "north", Call(function, {}, Position(1)), {"x": np.zeros(100), "documents": 20}
    )
    ledger.close()
    (check,) = [check for check in verify(tmp_path) if check.holds is False]
    assert re.search(says, check.text)


def test_each_line_that_is_taken_out_put_in_again_or_moved(ledger: Path) -> None:
    lines = lines_of(ledger)
    wrong = [lines[:i] + lines[i + 1 :] for i in range(len(lines))]
    wrong += [[*lines[:i], lines[i], *lines[i:]] for i in range(len(lines))]
    for i, j in combinations(range(len(lines)), 2):
        swapped = list(lines)
        swapped[i] = lines[j]
        swapped[j] = lines[i]
        wrong.append(swapped)
    for changed in wrong:
        ledger.write_bytes(b"".join(changed))
        assert faults(ledger)


def test_lines_that_are_cut_off_at_the_end(ledger: Path) -> None:
    lines = lines_of(ledger)
    for number in range(len(lines)):
        ledger.write_bytes(b"".join(lines[:number]))
        assert "end" in faults(ledger)
        assert [c.text for c in verify(ledger.parent) if c.what == "end"] == [
            f"{ledger}: its head records 7 lines, but there are {number}; lines were changed or "
            "cut off, or lost when power failed."
        ]
    ledger.write_bytes(b"".join(lines)[:-9])
    assert {"lines", "end"} <= {*faults(ledger)}


def test_a_ledger_of_an_earlier_version_is_not_one_of_nothing(ledger: Path) -> None:
    ledger.write_bytes(ledger.read_bytes().replace(b'"what": "sent"', b'"what": "left"'))
    for read in (partial(faults, ledger), partial(LedgerFacts.read, ledger)):
        with pytest.raises(RunError, match=r"by fedtopics before 0\.1, .* read it with that"):
            read()


def test_a_head_that_is_changed_or_gone(ledger: Path) -> None:
    head = head_path(ledger).read_bytes()
    for wrong in (head.replace(b'"lines": 7', b'"lines": 6'), head.replace(b"}", b"]"), b""):
        head_path(ledger).write_bytes(wrong)
        assert faults(ledger)[:1] == ["end"]
    head_path(ledger).unlink()
    assert faults(ledger)[:1] == ["end"]


def test_a_ledger_that_is_gone(ledger: Path) -> None:
    ledger.unlink()
    (check,) = [c for c in verify(ledger.parent) if c.what == "lines"]
    assert check.text.startswith(f"{ledger} is missing. It was deleted or moved, or lost in a pow")
    assert faults(ledger) == ["lines", "end"]
    head_path(ledger).unlink()
    (ledger.parent / "state").mkdir()  # where a client keeps what it needs to go on
    assert faults(ledger) == ["lines", "end"]


def test_a_ledger_of_one_client_of_a_simulation_that_is_gone(ledger: Path) -> None:
    for client in ("north", "south"):
        place = ledger.parent / "clients" / client
        place.mkdir(parents=True)
        for path in (ledger, head_path(ledger)):
            shutil.copy(path, place)
    shutil.rmtree(ledger.parent / "clients/south")
    missing = [c for c in verify(ledger.parent) if c.what == "lines" and not c.holds]
    assert [check.text for check in missing] == [
        f"{ledger.parent}/clients/south/ledger.jsonl is missing. It was deleted or moved, or lost "
        "in a power failure."
    ]


def test_who_comes_back_goes_on_in_the_chain(ledger: Path, signer: dict[str, Any]) -> None:
    with ledger.open("ab") as file:
        file.write(b'{"before": "half a line')  # as a process that is killed leaves it
    again = opened(ledger.parent, **signer)
    answered(again, 3)
    again.close()
    assert faults(ledger) == []
    assert len(lines_of(ledger)) == 11


def test_a_line_that_was_not_counted(ledger: Path, signer: dict[str, Any]) -> None:
    head = head_path(ledger).read_bytes()
    opened(ledger.parent, **signer).close()
    head_path(ledger).write_bytes(head)  # killed before it was
    (check,) = [c for c in verify(ledger.parent) if c.holds is False]
    assert "records 7 lines, but there are 9: the client was killed while writing" in check.text
    opened(ledger.parent, **signer).close()
    assert faults(ledger) == []
    last = lines_of(ledger)[-1].removesuffix(b"\n")  # and one that somebody else adds:
    forged = json.loads(last) | {"before": hashlib.sha256(last).hexdigest()}
    ledger.write_bytes(ledger.read_bytes() + json.dumps(forged).encode() + b"\n")
    assert faults(ledger) == (["end", "signature"] if signer else ["end"])


def test_who_has_another_key_can_write_all_anew_but_not_for_the_certificate(
    tmp_path: Path,
) -> None:
    certificates = {name: tmp_path / f"{name}.crt" for name in ("north", "south")}
    for name, path in certificates.items():
        path.write_bytes(key_of(name).certificate)
    true = written(tmp_path / "true", **signed_by("north"))
    assert faults(true, certificates["north"]) == []
    assert faults(true, certificates["south"]) == ["signature"]
    forged = written(tmp_path / "forged", key_of("south").sign, key_of("north").certificate)
    assert faults(forged) == ["signature"], "a certificate without its key"
    named = written(tmp_path / "named", **signed_by("south"))
    assert faults(named) == ["signature"], "another client's"
    plain = written(tmp_path / "plain")
    assert faults(plain) == [], "whoever has no signature to compare with has nothing"
    for wrong in (forged, named, plain):
        assert faults(wrong, certificates["north"]) == ["signature"]
    with pytest.raises(IdentityError, match="is damaged, or not a certificate"):
        faults(true, true)


def test_lines_of_another_key_after_the_own(tmp_path: Path) -> None:
    for number, signer in enumerate([signed_by("south"), {"sign": key_of("south").sign}, {}]):
        ledger = written(tmp_path / str(number), **signed_by("north"))
        opened(ledger.parent, **signer).close()
        assert faults(ledger) == ["signature"]


def test_an_earlier_state_is_noticed_by_who_has_kept_a_later_digest(ledger: Path) -> None:
    earlier = ledger.parent.with_name("earlier")
    shutil.copytree(ledger.parent, earlier)
    opened(ledger.parent).close()
    head = json.loads(head_path(ledger).read_bytes())["sha256"]
    assert "head" not in faults(ledger, head=head)
    assert faults(earlier / "ledger.jsonl", head=head) == ["head"]
    assert faults(earlier / "ledger.jsonl") == [], "which is not noticed otherwise"


def test_files_that_are_others_than_the_ledger_names(ledger: Path) -> None:
    folder = ledger.parent
    (folder / "model/config.json").write_text("{ }")
    assert faults(ledger) == ["file"]
    (folder / "model/config.json").unlink()
    (check,) = [c for c in verify(folder) if c.holds is False]
    assert check.text == f"{folder}/model/config.json, which line 7 records, is missing."
    study = folder / "study.toml"
    study.write_text(study.read_text().replace("seed = 0", "seed = 1"))
    assert faults(ledger) == ["study", "file", "file"]
    study.unlink()
    assert faults(ledger) == ["study", "file", "file"]


@pytest.mark.parametrize("name", ["/etc/passwd", "../secret", "link", "model/../../secret", "\0"])
def test_a_name_that_leads_out_of_the_folder_is_not_opened(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    path = written(tmp_path / "run")
    (path.parent / "link").symlink_to(tmp_path / "secret")
    ledger = opened(path.parent)
    ledger.add("stored", file=name, bytes=6, sha256=hashlib.sha256(b"secret").hexdigest())
    ledger.close()
    (check,) = [check for check in verify(path.parent) if check.holds is False]
    assert check.text.endswith(f"names a file outside {path.parent}; it was not opened.")


def test_a_file_of_another_size_is_not_read(ledger: Path) -> None:
    os.truncate(ledger.parent / "model/config.json", 1 << 40)  # sparse: it takes no place
    assert faults(ledger) == ["file"]


def test_lawful_deletion_is_no_tampering(signer: dict[str, Any], ledger: Path) -> None:
    key = SimpleNamespace(sign=signer["sign"], has_signed=lambda *_: True) if signer else None
    content = (ledger.parent / "model/config.json").read_bytes()
    assert delete_files(ledger.parent, ["model"], cast("Any", key)) == ["model/config.json"]
    assert (faults(ledger), LedgerFacts.read(ledger).lines) == ([], 8)
    (deleted,) = [check.text for check in verify(ledger.parent) if "was deleted on" in check.text]
    assert deleted.startswith(f"{ledger.parent}/model/config.json was deleted on 20")
    (ledger.parent / "model/config.json").write_bytes(content)
    assert faults(ledger) == ["file"], "which came back"
    for name in ("theta.parquet", "mod", "../secret"):
        with pytest.raises(RunError, match=r"names none of .*; it names study\.toml, model/config"):
            delete_files(ledger.parent, [name], cast("Any", key))


def test_a_signed_ledger_records_a_deletion_only_with_its_key(tmp_path: Path) -> None:
    path = written(tmp_path / "run", **signed_by("north"))
    with pytest.raises(RunError, match="is signed; give the folder of the key of 'north'"):
        delete_files(path.parent, ["model"])
    with pytest.raises(RunError, match="not signed with this client's key"):
        delete_files(path.parent, ["model"], key_of("south"))
    assert (path.parent / "model/config.json").exists()
    assert delete_files(path.parent, ["model"], key_of("north")) == ["model/config.json"]
    assert faults(path) == []


def test_a_ledger_alone(tmp_path: Path) -> None:
    """An auditor gets the file, perhaps without its head: all lines are signed."""
    path = written(tmp_path / "run", **signed_by("north"))
    alone = Path(shutil.copy(path, tmp_path / "ledger.jsonl"))
    checks = {check.what: check for check in verify(alone)}
    assert [what for what, check in checks.items() if check.holds] == [
        "lines",
        "signature",
        "data sent",
    ]
    assert "lines may have been cut off" in checks["files"].text
    lines = lines_of(alone)
    alone.write_bytes(b"".join([*lines[:-1], lines[-1].replace(b"stored", b"storey")]))
    assert [c.what for c in verify(alone) if c.holds is False] == ["signature"]
    shutil.copy(path, alone)
    shutil.copy(head_path(path), head_path(alone))
    assert {check.what for check in verify(alone) if check.holds} > {"end", "signature"}
    alone.write_bytes(b"".join(lines_of(alone)[:-1]))
    assert "end" in {check.what for check in verify(alone) if check.holds is False}
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(RunError, match=r"is not a ledger; give ledger\.jsonl"):
        list(verify(tmp_path / "notes.txt"))


def test_a_study_whose_fingerprint_begins_alike(ledger: Path) -> None:
    lines = ledger.read_text().splitlines()
    told = json.loads(lines[-1])
    assert len(bytes.fromhex(told["study"])) == 32
    told["study"] = told["study"][:-1] + ("1" if told["study"].endswith("0") else "0")
    ledger.write_text("\n".join([*lines[:-1], json.dumps(told)]) + "\n")
    assert "study" in faults(ledger)


def test_rates_by_hand() -> None:
    scores = np.array([[3.0, 1.0, 2.0, 0.0]])
    assert rates(scores, np.array([[True, True, False, False]])) == (0.75, 0.5)


def test_ratios_find_a_difference_that_each_document_has_of_its_own() -> None:
    """Where documents differ by far more than membership does, the scores alone say nothing."""
    rng = np.random.default_rng(0)
    members = rng.random((16, 400)) < 0.5
    scores = 10 * rng.normal(size=400) + members + 0.5 * rng.normal(size=members.shape)
    assert rates(scores, members)[0] < 0.55
    assert rates(likelihood_ratios(scores, members), members)[0] > 0.88  # Phi(2 / sqrt 2) = .92


def test_nothing_is_found_where_nothing_is() -> None:
    """A document that is in one of few models has fewer others with it, with a less sure mean."""
    rng = np.random.default_rng(1)
    members = rng.random((16, 400)) < 0.5
    ratios = likelihood_ratios(rng.normal(size=members.shape), members)
    assert abs(rates(ratios, members)[0] - 0.5) < 0.02
    assert rates(ratios, members)[1] < 0.02
    rng = np.random.default_rng(2)
    first = rng.random((3, 4000)) < 0.5
    members = np.stack([first, ~first], axis=1).reshape(6, -1)
    ratios = likelihood_ratios(rng.normal(size=members.shape), members)
    assert abs(rates(ratios, members)[0] - 0.5) < 0.02


def test_what_a_bound_allows() -> None:
    """At epsilon 1 and delta 1e-6 mu is .237."""
    most = allowed(Privacy(epsilon=1))
    assert most is not None
    assert most[0] == pytest.approx(norm.cdf(0.2366 / np.sqrt(2)), abs=0.001)
    assert most[1] == pytest.approx(norm.cdf(norm.ppf(0.01) + 0.2366), abs=0.001)
    assert allowed(None) is None
    more = allowed(Privacy(epsilon=1, unit="person", most_documents=1))
    assert more is not None
    assert more[0] > most[0], "a document of a person is replaced by another one"


def test_many_topics_of_few_documents_tell_who_was_there(tmp_path: Path) -> None:
    corpus = Corpus.pool(list(subjects({"a": 60, "b": 60}).values()))
    method = {
        "name": "lda",
        "n_components": 40,
        "learning": "batch",
        "max_rounds": 5,
        "coherence": "nothing",
    }
    plan = Study.make(method=method, vocabulary=ANY_WORDS).with_clients(["north", "south"])
    done: list[int] = []
    audited = audit(plan, corpus, 6, on_progress=lambda number, _: done.append(number))
    assert done == [1, 2, 3, 4, 5, 6]
    assert audited.auc > 0.55, "with numbers of words that are rounded"
    assert (audited.shadows, audited.documents, audited.allowed) == (6, 6 * 120, None)
    path = tmp_path / "audit.json"
    path.write_text(audited.model_dump_json())
    assert Audit.read(path, plan.fingerprint).model_dump() == audited.model_dump()
    with pytest.raises(RunError, match="is an audit of the study"):
        Audit.read(path, "f00d")


def test_too_few_documents() -> None:
    plan = Study(method={"name": "lda"}).with_clients(["north", "south"])
    with pytest.raises(DataError, match="give more documents"):
        audit(plan, subjects({"a": 50})["a"])
