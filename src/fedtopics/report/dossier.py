"""The dossier of a model: one page for an output checker."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from math import prod
from pathlib import Path

from fedtopics.files import read_bytes
from fedtopics.model.folder import UNEDITED, model_folder
from fedtopics.model.topic_model import TopicModel
from fedtopics.privacy.disclosure import Disclosure, disclosure
from fedtopics.report.dpia import DIGESTS, audit_table, digests_of
from fedtopics.report.dpia_document import PROGRAM, Document, FormTable, Part, Section, Statement
from fedtopics.report.dpia_records import Records
from fedtopics.text.corpus import Corpus


def dossier_of(
    run: Path,
    documents: Corpus | None = None,
    others: Corpus | None = None,
    earlier: Sequence[Path] = (),
    list_words: bool = False,
) -> Document:
    """Fill in the dossier of the model in the folder of a run or of a model.

    Parameters
    ----------
    run : the folder; a study, ledgers and ``audit.json`` in it are cited.
    documents, others, earlier : as for `disclosure`; folders of earlier models.
    list_words : list the words of few persons, for the owner of the documents only.
    """
    folder = model_folder(run)
    model = TopicModel.from_pretrained(folder)
    records = Records.read(run) if (run / "study.toml").is_file() else None
    about = disclosure(
        model, documents, others=others, earlier=[*map(TopicModel.from_pretrained, earlier)]
    )
    source = "the model's files" + ("" if documents is None else "; the documents given")
    statements = {
        name: [Statement(sentence, source) for sentence in sentences]
        for name, sentences in about.remarks.items()
    }
    digests = [
        [name, "SHA-256", hashlib.sha256(read_bytes(folder / name)).hexdigest()]
        for name in UNEDITED
    ]
    # In a fixed order, so that a checker finds the same thing in the same place.
    parts: dict[str, Sequence[Part]] = {
        "What the model is": [
            Statement(
                f"The method is {model.info.get('method', 'not known')}; the number of topics is "
                f"{model.n_topics:,}, that of words {len(model.vocabulary):,}, and that of clients "
                f"{len(model.documents):,}.",
                "config.json",
            )
        ],
        "What it contains": [_contents(about)],
        "Words and topics of fewest persons": [
            *statements["persons"],
            *([_rare_words(about)] if list_words else []),
        ],
        "An attack": [*statements["attack"], *([] if records is None else audit_table(records))],
        "Differences from earlier models": statements["differences"],
        "Noise": statements["noise"],
        "What to look at": [Statement(sentence, source) for sentence in about.to_check],
        "Digests": [
            FormTable(DIGESTS, [*digests, *([] if records is None else digests_of(records))])
        ],
    }
    return Document(
        f"Dossier of the model {run.resolve().name}",
        [
            f"Filled in by {PROGRAM} on {datetime.now(UTC):%Y-%m-%d}. Numbers in brackets name the "
            "records, which are listed at the end. Documents are those given, without those of "
            "other members."
        ],
        [Section(str(n), title, [*of]) for n, (title, of) in enumerate(parts.items(), 1)],
    )


def _contents(about: Disclosure) -> FormTable:
    return FormTable(
        head=["array", "shape", "entries"],
        rows=[
            [name, " x ".join(map(str, shape)), f"{prod(shape):,}"]
            for name, shape in about.contents.items()
        ],
        source="model.safetensors; config.json; vocabulary.json",
    )


def _rare_words(about: Disclosure) -> FormTable:
    return FormTable(
        head=[f"word of few {about.unit}", about.unit],
        rows=[[word, f"{about.word_persons[word]:,}"] for word in about.rare_words],
    )
