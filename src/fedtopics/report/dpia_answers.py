"""Answers of people to the questions of an impact assessment, in a file that is used again."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from fedtopics.errors import RunError
from fedtopics.escaping import as_json
from fedtopics.files import read_toml, write_output
from fedtopics.report.dpia_document import Document, Gap, Part, Statement

FILE = "answers.toml"
HEADER = """\
# Answers to the questions of a data protection impact assessment that no record of the program
# answers. Write yours between the quotation marks, or between three of them for several lines.
# The next draft uses them: fedtopics audit dpia ... --answers FILE
"""


class AnsweredQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question, who is to answer it, and the answer; "" if there is none yet."""

    section: str
    who: str
    question: str
    answer: str


class _Answers(msgspec.Struct, forbid_unknown_fields=True):
    question: list[AnsweredQuestion]


def read_answers(path: Path) -> list[AnsweredQuestion]:
    """Read answers; none if there is no file yet. RunError for a file with anything else."""
    if not path.exists():
        return []
    try:
        return msgspec.convert(read_toml(path), _Answers).question
    except (OSError, ValueError):
        raise RunError(
            f"{path} is not a file of answers: each [[question]] has section, who, question and "
            "answer, as texts in quotation marks. It was not changed; correct it, or name another "
            "file with --answers."
        ) from None


def answered(section: str, part: Part, answers: Sequence[AnsweredQuestion]) -> Part:
    """Return a question with its answer, if somebody gave one."""
    if not isinstance(part, Gap):
        return part
    texts = (
        earlier.answer.strip()
        for earlier in answers
        if (earlier.section, earlier.question) == (section, part.question)
    )
    text = next(filter(None, texts), "")
    return Statement(f"{part.question} {text}", f"{FILE}, answered by {part.who}") if text else part


def write_answers(form: Document, path: Path, answers: Sequence[AnsweredQuestion]) -> Path:
    """Write all questions of a form with the answers so far, also those of another version."""
    open_questions = [
        AnsweredQuestion(section.number, part.who, part.question, answer="")
        for section in form.sections
        for part in section.parts
        if isinstance(part, Gap)
    ]
    names = {(answer.section, answer.question) for answer in open_questions}
    earlier = [answer for answer in answers if (answer.section, answer.question) not in names]
    tables = [
        "\n[[question]]\n"
        + "".join(
            f"{name} = {as_json(value)}\n" for name, value in msgspec.structs.asdict(answer).items()
        )
        for answer in sorted([*earlier, *open_questions], key=lambda answer: answer.section)
    ]
    return write_output(path, (HEADER + "".join(tables)).encode(), [".toml"])
