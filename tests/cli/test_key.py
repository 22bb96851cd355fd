"""The commands for keys: which file goes to whom, and one line an error."""

import json
import re
from pathlib import Path

import pytest

from fedtopics.protocol.roster import Key, certificate_fingerprint, shown
from fedtopics.terminal import display
from tests.helpers.command_line import Typed


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(display, "console", display.Terminal(width=40))


def test_one_key(typed: Typed) -> None:
    code, said, _ = typed("key", "create", "north")
    key = Key.load("north")
    assert (code, "demonstrations" in said) == (0, False)
    assert said.startswith("north contains the private key of 'north'. Keep it on this machine;")
    assert "\nnorth.pem is the certificate of 'north'. Send it to the other members" in said
    assert '\n  certificate = "north.pem"\n' in said
    assert f"\n  {shown(key.certificate)}\n" in said


def test_several_keys_on_one_machine(typed: Typed) -> None:
    _, said, _ = typed("key", "create", "a", "b", "c", "--out", "keys")
    assert [Key.load(f"keys/{name}").name for name in "abc"] == ["a", "b", "c"]
    assert "keys/b.pem is the certificate of 'b'" in said
    assert len(re.findall(r"^  (?:[0-9a-f]{4} ?){16}$", said, re.MULTILINE)) == 3
    assert (
        "act as each of these members and read everything. Use them for demonstrations"
        in said.strip().splitlines()[-1]
    )


def test_a_folder_and_a_certificate_are_shown_alike(typed: Typed) -> None:
    typed("key", "create", "north")
    digits = shown(Key.load("north").certificate)
    _, folder, _ = typed("key", "show", "north")
    _, file, _ = typed("key", "show", "north.pem")
    for said in (folder, file):
        assert said.startswith("name         north\npath         north")
        assert f"\n  {digits}\n" in said
    assert "Send north.pem, which is next to it" in folder
    assert "Send" not in file
    described = json.loads(typed("key", "show", "north.pem", "--json")[1])
    assert described["sha256"] == certificate_fingerprint(Path("north.pem").read_bytes())
    assert (described["name"], described["path"]) == ("north", "north.pem")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", described["valid_until"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create",), "Missing argument 'NAME...'"),
        (("create", "east", "../a"), "'../a' cannot name a client"),
        (("create", "north"), "north exists already, and a key is never overwritten"),
        (("show", "nowhere"), "nowhere cannot be read: No such file or directory."),
        (("show", "."), ". has no key, or a damaged one; make one with"),
        (("show", "north/key.pem"), "north/key.pem is a private key, which must stay secret"),
        (("show", "text"), "The certificate text is damaged, or not a certificate"),
        (("sho",), "No such command 'sho'"),
    ],
)
def test_errors_are_one_line(arguments: tuple[str, ...], message: str, typed: Typed) -> None:
    typed("key", "create", "north")
    Path("text").write_text("zanzibar")
    code, said, error = typed("key", *arguments)
    assert (code, said) == (2, "")
    assert message in error
    assert "zanzibar" not in error
    assert not Path("east").exists()
