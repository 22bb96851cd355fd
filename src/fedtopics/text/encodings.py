"""What a file is by its first bytes, and which encoding a text may have: never a silent guess."""

import codecs
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from fedtopics.errors import first_problem
from fedtopics.files import open_file

HEAD = 4096  # bytes
UTF8 = "utf-8-sig"  # a mark at the beginning is not part of the text
LINE = 1 << 16  # bytes of a line, at most
SAMPLED_LINES = 200
GUESSES = 3
TOO_FEW = 9  # bytes that are not ASCII, for a guess
ASCII = bytes(range(128))
MANY = 0.1  # share of bytes that are NUL, which no text has; programs that read PDF leave some
MOSTLY = 0.5  # of the first or second bytes of characters
CONTROLS = bytes(range(9))  # the first bytes of most alphabets in UTF-16, and hardly in texts
# A byte order mark says the encoding; that of UTF-32 begins with that of UTF-16.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: UTF8,
}
MAGIC = {  # first bytes of a file, what it is, and what to do
    b"PAR1": ("a Parquet file", "rename it to end in .parquet"),
    b"PK\x03\x04": (
        "a ZIP file, as those of Excel and LibreOffice are",
        "rename it to end in .xlsx or .ods, or unpack it",
    ),
    b"\xd0\xcf\x11\xe0": (
        "a file of an older Office, or one with a password",
        "rename it to end in .xls, or save it as .xlsx without a password",
    ),
    b"\x1f\x8b": ("a gzip file", "rename it to end in .gz, as in data.csv.gz"),
    b"%PDF": ("a PDF", "save its text"),
    b"{\\rtf": ("a file in Rich Text Format", "save its text"),
    b"$FL2": ("an SPSS file", "rename it to end in .sav"),
    b"$FL3": ("a compressed SPSS file", "rename it to end in .zsav"),
    b"<stata_dta>": ("a Stata file", "rename it to end in .dta"),
    b"SQLite format 3": (
        "an SQLite database",
        "write a query for it into a file that ends in .sql",
    ),
    b"ARROW1": ("a Feather file", "save it as Parquet"),
}
USUAL = (
    "utf_8 cp1252 cp1250 cp1251 cp1253 cp1254 cp1255 cp1256 cp1257 iso8859_2 iso8859_15 koi8_r "
    "mac_roman cp437 cp850 cp852 cp866 cp874 shift_jis cp932 euc_jp gb18030 big5 euc_kr cp949 "
    "utf_16_le utf_16_be"
)
WINDOWS = "cp1252"  # Excel's in Western Europe and America


def beginning_of(path: Path, size: int = HEAD) -> bytes:
    """Return the first bytes of a file."""
    with open_file(path) as file:
        return bytes(file.read(size))


def encoding_of(head: bytes, wanted: str) -> str:
    """Return the encoding to open a text with: the one of its mark, the wanted one, or UTF-8."""
    mark = next((name for mark, name in MARKS.items() if head.startswith(mark)), "")
    return mark or wanted or UTF8


def other_kind(head: bytes, wanted: str = "") -> str:
    """Return what a file is, and what to do; "" if it may be a text in the `wanted` encoding."""
    is_other = first_problem(
        {f"is {kind}; {remedy}": head.startswith(magic) for magic, (kind, remedy) in MAGIC.items()}
    )
    if is_other or wanted or any(map(head.startswith, MARKS)):
        return is_other
    even, odd = (
        (len(part) - len(part.translate(None, CONTROLS))) / max(len(part), 1)
        for part in (head[::2], head[1::2])
    )
    return first_problem(
        {
            f"is UTF-16 without a byte order mark; {advice('utf-16-le')}": (
                odd > MOSTLY and even < MANY
            ),
            f"is UTF-16 without a byte order mark; {advice('utf-16-be')}": (
                even > MOSTLY and odd < MANY
            ),
            f"is in an encoding with escapes; {advice('iso2022_jp')}": (
                b"\x1b$" in head or b"\x1b(" in head
            ),
            "is not a text, because many of its bytes are NUL; give a text, or another format": (
                head.count(0) > MANY * len(head)
            ),
        }
    )


def advice(encoding: str) -> str:
    return (
        f'set encoding = "{encoding}" in the client\'s table, --columns encoding={encoding}, or '
        "Columns in Python"
    )


def not_utf8(file: IO[bytes], wanted: str = "") -> str:
    """Return what to do with a file that is not UTF-8, with a guess of its encoding for people.

    It is not the `wanted` encoding.
    """
    from charset_normalizer import from_bytes  # late, because it is seldom needed

    sample = b"".join(islice(_lines_not_utf8(file), SAMPLED_LINES))
    matches = [*from_bytes(sample, cp_isolation=USUAL.split())][:GUESSES]
    guesses = [WINDOWS if WINDOWS in m.could_be_from_charset else m.encoding for m in matches]
    if len(sample.translate(None, ASCII)) < TOO_FEW:
        guesses.append(WINDOWS)
    guesses = [name for name in dict.fromkeys(guesses) if name != wanted]
    guesses.sort(key=lambda name: name != WINDOWS)
    maybe = f"it may be {' or '.join(guesses)}: " if guesses else ""
    return (
        f"{maybe}{advice(guesses[0] if guesses else WINDOWS)}, and compare some letters, or save "
        "it as UTF-8, which Excel calls CSV UTF-8"
    )


def _lines_not_utf8(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines that are not UTF-8, because the others say nothing about the encoding."""
    for line in iter(lambda: file.readline(LINE), b""):
        try:
            line.decode()
        except UnicodeDecodeError:
            yield line
