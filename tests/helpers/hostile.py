"""What others may write who mean no good: words that pass as such, and text that is none."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedtopics import TopicModel
from fedtopics.report.run import RunFacts
from tests.helpers.models import made

# What nobody can tell from a word, as it prints: each is markup, a formula or a command to someone.
HOSTILE_WORDS = (
    "<script>alert(1)</script>",
    "a|b",
    "R&D",
    "`tick`",
    "\"quoted\" 'word'",
    "</script><b>",
    "&lt;",
    "<!--",
    "[link](http://example.org)",
    "<img/src=x/onerror=alert(2)>",
    "{{7*7}}",
    "</style><style>*{display:none}</style>",
    "![](http://example.org/x.png)",
    "$x^2$",
    "{% raw %}",
    "<svg/onload=alert(4)>",
    "'><img src=http://example.org/y>",
    "javascript:alert(5)",
    "http://example.org/z",
    "=cmd|' /C calc'!A0",
    "@SUM(1)",
    "-2+3",
    "+1;=HYPERLINK(1)",
    "\uff1d1+1",
    "[bold]x[/nothing]",
    ":skull:",
    "\\u003cb\\u003e",
    "${alert(6)}",
    "%00%1b[2J",
    "\\x1b[2J",
    "مرحبا",
    "שלום",
    "日本語",
    "W" * 100,
    "﷽" * 40,
    "x" + 6 * "\u0316",
    "👩",
    "\uff41\uff42",
)
# What does not print, turns or hides text, is piled up, looks empty, or ends native code.
NO_WORDS = (
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b2J",
    "a\x00b",
    "bell\x07",
    "back\x08",
    "\x7f",
    "two\nlines",
    "tab\there",
    "return\rover",
    "\x85next",
    "\u2028line",
    "\u2029paragraph",
    "\u202eabc",
    "\u202aabc\u202c",
    "\u2066abc\u2069",
    "\u200fabc",
    "\u061cabc",
    "zero\u200bwidth",
    "zero\u200dwidth",
    "soft\u00adhyphen",
    "\ufeffmark",
    "\U000e0041\U000e0042",
    "\ue000",
    "\ufffe",
    "a\uffffb",
    "\ufdd0",
    "\U0001ffff",
    "\ud800",
    "e" + 7 * "\u0316",
    "\u0301e",
    "a \u0301",
    "cafe\u0301",
    "\u3164",
    "\u2800x",
    "",
    " ",
    " a",
    "a ",
    "a  b",
    "no\u00a0break",
    "x" * 101,
)
HOSTILE_LABEL = '</title><script>alert(3)</script> & "x" | `y` *z*'


def hostile(words: tuple[str, ...] = HOSTILE_WORDS, **changes: Any) -> TopicModel:
    """A model with these words, which nothing has checked, and a label that looks like markup."""
    n = len(words)
    beta = np.random.default_rng(0).dirichlet(np.ones(n), 3)
    model = made()
    return replace(
        model,
        inference=type(model.inference)(n, model.inference.settings),
        weights={"pseudo_counts": beta.T * 10},
        vocabulary=replace(
            model.vocabulary,
            words=words,
            document_frequency=np.full(n, 9),
            occurrences=np.arange(n, 0, -1),
        ),
        word_sums=beta * 100,
        **{"labels": {1: HOSTILE_LABEL}} | changes,
    )


def unchecked(text: str = "".join(NO_WORDS)) -> TopicModel:
    """A model all of whose texts are such as no check lets in: what shows them is on its own."""
    names = {f"north{text}": np.array([0.5, 0.25, 0.25]), "south": np.array([0.0, 1.0, 0.0])}
    return hostile(
        (*(word for word in NO_WORDS if word != "\ud800"), *HOSTILE_WORDS),
        labels={0: f"=label{text}", 1: HOSTILE_LABEL},
        shares=names,
        documents=dict(zip(names, (30, 10), strict=True)),
        coherence={f"npmi{text}": np.array([0.5, 0.25, -0.25])},
        info={"method": f"lda{text}", "rounds": 3, "seed": 1},
    )


WICKED = "</title><script>alert(7)</script>`|*" + "".join(NO_WORDS)
ROUND = {"event": "round", "seconds": 0.5, "clients": [WICKED], "bytes_received": 7}


def wicked_run() -> RunFacts:
    """A run whose study, events and ledgers say nothing that can be trusted."""
    events = [
        {"event": "started", "study": WICKED},
        ROUND | {"round": 1, "loss": 3.0, "missing": {WICKED: WICKED}},
        ROUND | {"round": 2, "loss": 2.0},
    ]
    row = {"function": "vocabulary", "method": "lda", "documents": 20, "fields": [], "replies": 1}
    study = {"name": WICKED, "method": {"name": WICKED, WICKED: WICKED}, WICKED: {"x": [WICKED]}}
    return RunFacts(
        WICKED, study, events, {WICKED: [row | {"bytes": 7, "masked": False}]}, seeded=(WICKED,)
    )
