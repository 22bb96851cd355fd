"""Texts without HTML, entities and addresses."""

from __future__ import annotations

import pytest

from fedtopics.text.cleaning import cleaner, plain


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("no mark-up: 3 < 4 and a<b, R&D; AT&T;", "no mark-up: 3 < 4 and a<b, R&D; AT&T;"),
        ("<p>Oak</p><p>elm</p>", "Oak elm"),
        ("un<b>believ</b>able<br/>oak", "unbelievable oak"),
        ("a<td>oak</td><td title='x'>elm</td>", "a oak elm"),
        ("B&auml;ume &amp;amp; B&#252;sche &#x41; &unknown;", "Bäume & Büsche A &unknown;"),
        ("be&shy;ech&nbsp;tree", "beech tree"),
        ("oak<!-- <b>no</b> -->elm</p>", "oak elm"),
        ("oak<SCRIPT type=x>var no = '<b>';</script >elm<style>p {}</style>", "oak elm"),
        ("oak<script>never closed <p>no</p>", "oak"),
        ("&lt;p&gt;oak&lt;/p&gt;", "oak"),
        ("<!doctype html><oak>", ""),
        ("<oak> is no tag by itself", "<oak> is no tag by itself"),
        ("", ""),
    ],
)
def test_html_of_texts_that_look_like_it(text: str, left: str) -> None:
    assert " ".join(plain(text).split()) == left


def test_html_always_or_never() -> None:
    assert cleaner(True, "keep")("<oak> elm").split() == ["elm"]
    assert cleaner(False, "keep")("<p>oak &amp; elm</p>") == "<p>oak &amp; elm</p>"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("see https://example.org/a-b?c=d#e, and", "see and"),
        ("WWW.EXAMPLE.ORG/x oak", "oak"),
        ("请看www.example.org/公园", "请看 公园"),
        ("(ftp://example.org/oak.txt)", "("),
        ("write to ann.b+c@mail.example.org.", "write to ."),
        ("oak @ home, @ann and 1@2", "oak @ home, @ann and 1@2"),
        ("http and www alone", "http and www alone"),
    ],
)
def test_addresses(text: str, left: str) -> None:
    assert " ".join(cleaner("auto", "drop")(text).split()) == left
    assert cleaner("auto", "keep")(text) == text


@pytest.mark.parametrize(
    "piece", ["<", "<p", "<script>", "<!--", "&", "a@", "www.", "http://", "@"]
)
def test_long_texts_that_repeat_a_beginning_are_read(piece: str) -> None:
    text = piece * 50_000
    assert len(cleaner(True, "drop")(text)) <= len(text) + 1
