"""The page of a run that is followed: all that others wrote is text there."""

from __future__ import annotations

import json
from pathlib import Path

from fedtopics.federation.followed import FollowedRun
from fedtopics.federation.run_folder import RunFolder
from fedtopics.report.status import EVERY, status_page

EVIL = "<script>alert(1)</script>\u202e"


def test_names_and_words_are_text(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, "study1")
    next(run.rounds(0, 3))
    events = [
        {"event": "study", "name": EVIL, "settings": {}},
        {"event": "listening", "address": "x", "clients": [EVIL]},
        {"event": "declined", "client": EVIL, "reason": EVIL},
        {"event": "round", "round": 1, "seconds": 1.0, "topics": [{"words": [EVIL, "oak"]}]},
        {"event": "no majority", "clients": [], "missing": [EVIL], "majority": 2},
    ]
    with (tmp_path / "events.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
    page = status_page(FollowedRun(tmp_path))
    run.close()
    assert "<script" not in page
    assert "\u202e" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;\\u202e") == 6
    assert "<td>&lt;script&gt;alert(1)&lt;/script&gt;\\u202e, oak</td>" in page
    assert f'http-equiv="refresh" content="{EVERY}"' in page
    assert "http://" not in page
    assert "https://" not in page
