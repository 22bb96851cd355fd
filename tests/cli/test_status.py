"""The command that says how a run stands, and what server and clients serve of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fedtopics.cli import status as module
from fedtopics.federation.local_http import LOOPBACK, serving
from tests.helpers.command_line import Typed


@pytest.fixture
def run(typed: Typed) -> Path:
    assert typed("run", "study.toml", "--out", "out")[0] == 0
    return Path("out")


def test_an_ended_run(run: Path, typed: Typed) -> None:
    code, out, _ = typed("status", run)
    assert code == 0
    first, second, *_ = out.splitlines()
    assert first == "study: finished: the model is there"
    assert second.startswith("round 12 of 12, ")
    assert "left" not in second
    assert "Topics\n    0  " in out
    code, out, _ = typed("status", run, "--json")
    found = json.loads(out)
    assert (code, found["state"], found["running"], found["round"]) == (0, "finished", False, 12)
    assert {name: c["rounds"] for name, c in found["clients"].items()} == {"north": 12, "south": 12}
    assert len(found["topics"]) == 3


def test_a_page(run: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []

    def wait() -> None:
        """In place of Ctrl-C: look at the page, and go."""
        address = addresses[0]
        with urlopen(address) as answer:  # noqa: S310 - its own
            pages.append(answer.read().decode())
        run.rename("away")
        with pytest.raises(HTTPError) as refused:
            urlopen(address)  # noqa: S310
        with refused.value as answer:
            pages.append(f"{answer.code} {answer.read().decode()}")
        raise KeyboardInterrupt

    addresses: list[str] = []
    monkeypatch.setattr(module, "say", lambda text: addresses.append(text.split()[0]))
    monkeypatch.setattr(module, "until_interrupted", wait)
    assert typed("status", run, "--watch", 0)[0] == 0
    page, gone = pages
    assert gone.startswith("503 There is no run in out; name the folder of one")
    assert addresses[0].startswith(f"http://{LOOPBACK}:")
    assert "<h1>study: finished: the model is there</h1>" in page
    assert '<progress value="12" max="12"' in page
    assert "<script" not in page
    assert "<td>north</td>" in page


def test_wrong_input(run: Path, typed: Typed) -> None:
    assert "There is no run in nowhere; name the folder" in typed("status", "nowhere")[2]
    code, _, err = typed("status", run, "--json", "--watch", 0)
    assert (code, err) == (2, "fedtopics: --json and --watch exclude each other.\n")
    with serving(LOOPBACK, 0, {}) as address:
        port = address.rpartition(":")[2]
        code, _, err = typed("status", run, "--watch", port)
        assert (code, err) == (
            2, f"fedtopics: Port {port} of {LOOPBACK} is in use; name another one.\n"
        )  # fmt: skip
        server = "server", "study.toml", "--insecure", "--listen", f"{LOOPBACK}:0"
        code, _, err = typed(*server, "--metrics", port)
        assert (code, "is in use; name another one" in err) == (2, True)
        for wrong in ("x", "1:x", "70000", ""):
            code, _, err = typed(*server, "--metrics", wrong)
            assert (code, "is neither PORT nor HOST:PORT" in err) == (2, True)
    shutil.rmtree(run / "model")
    assert typed("status", run)[0] == 0
