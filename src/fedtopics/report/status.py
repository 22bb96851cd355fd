"""A run that is followed, as a page that loads itself again; it has no script."""

from __future__ import annotations

import time

from fedtopics.federation.followed import FollowedRun
from fedtopics.harmless import visible
from fedtopics.report.render import environment

EVERY = 2  # seconds


def status_page(run: FollowedRun) -> str:
    """Return how a run stands now as a page; see `FollowedRun.update` for what it raises."""
    status, running = run.update(), run.running
    title, *lines = status.told(running, time.time())
    over = status.state == "finished"
    return environment(escaped=True, show=visible).get_template("status.html.j2").render(
        title=title, lines=lines, round=status.round, rounds=status.rounds, clients=status.clients,
        forming=run.forming(), every=60 if over else EVERY,
    )  # fmt: skip
