"""Languages of texts: detection, stop words, base forms, and words of unspaced scripts."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from stop_words import AVAILABLE_LANGUAGES, LANGUAGE_MAPPING, get_stop_words

from fedtopics.extras import require
from fedtopics.text.words import lower, normal_form

DETECT = "detect"
OF_LANGUAGES = "languages"  # stop words of the named languages
UNSPACED = {
    "zh": "chinese",
    "ja": "japanese",
    "th": "thai",
    "lo": "lao",
    "my": "burmese",
    "km": "khmer",
}
CODES: dict[str, str] = LANGUAGE_MAPPING | UNSPACED
NAMES = {name: code for code, name in CODES.items()}
DETECTED_AS = {"no": "norwegian", "nn": "norwegian"}  # in addition to the codes
LIKELY = 0.1  # a language's stop words apply from this share of all candidates' probability
BEGINNING = 500  # characters of a text from which its language is detected
CACHED_WORDS = 1 << 17  # words whose base forms are cached
SHORTEST_WORD = 2  # characters of a word, as in the pattern "words"
# The package stop-words has only single characters for Chinese, and nothing for Thai.
FURTHER = {
    "chinese": """我们 你们 他们 她们 它们 咱们 自己 大家 这个 那个 这些 那些 这里 那里 这样 那样
        什么 怎么 怎样 为什么 如何 因为 所以 但是 可是 不过 而且 并且 或者 如果 虽然 然后 于是 因此
        由于 关于 对于 根据 为了 以及 还是 就是 不是 也是 都是 已经 正在 一个 一些 一种 一样 一起
        没有 可以 可能 应该 能够 需要 必须 非常 十分 其中 其他 之后 之前 之间 以后 以前 现在 时候
        我在 他在 她在""",
    "thai": """และ ของ ใน ที่ เป็น มี การ ได้ ให้ กับ ไม่ จะ จาก ว่า นี้ นั้น แต่ หรือ ก็ ความ ซึ่ง โดย
        เพื่อ ต้อง อยู่ แล้ว คือ เรา เขา ฉัน ผม คุณ มัน ไป มา ถ้า เมื่อ ยัง ถึง ทุก บน แห่ง ด้วย กัน ตาม""",
}
# scikit-learn's list has no contractions, because its words end at apostrophes.
CONTRACTED = {
    "'s": "he here how it let she that there what when where who why",
    "'re": "there they we what who you",
    "'ll": "he i it she that there they we who you",
    "'ve": "could i might must should they we who would you",
    "'d": "he how i it she that there they we what where who you",
    "'m": "i",
    "n't": "ai are ca could did do does had has have is might must need sha should was were wo "
    "would",
}
INSTALL = "'fedtopics[languages]'"
# Prefixes with an apostrophe that are not part of a noun; as in Lucene, with more for Italian.
# French aujourd'hui, quelqu'un and presqu'île stay whole.
ELIDED = {
    language: re.compile(rf"(?:{'|'.join(articles.split())})'(?=\w)", re.I).match
    for language, articles in {
        "french": "l d j m t s c n qu jusqu quoiqu lorsqu puisqu",
        "italian": """l un d c m s t v n gl ch all dall dell nell sull coll pell agl dagl degl negl
            sugl quest quell com dov cos anch""",
        "catalan": "l d m n s t",
    }.items()
}


def language_name(value: str) -> str:
    """Return a language's name from its name or code; ValueError if it is unknown."""
    name = CODES.get(value, value)
    if name not in NAMES:
        raise ValueError(
            f"the language {value!r} is unknown; choose from: {', '.join(sorted(NAMES))}, by "
            'name or by code such as "de", or "detect"'
        )
    return name


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return a language's stop words; for English scikit-learn's, and contractions."""
    if language == "english":  # the list of stop-words would drop words such as "groups"
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        contracted = {word + end for end, words in CONTRACTED.items() for word in words.split()}
        return frozenset(ENGLISH_STOP_WORDS | contracted)
    listed = get_stop_words(language) if language in AVAILABLE_LANGUAGES else ()
    return frozenset((*FURTHER.get(language, "").split(), *listed))


def check_installed(languages: Sequence[str], lemmas: bool = False) -> None:
    """Raise FedTopicsError if a package is missing that a study's languages need."""
    if not languages:
        return
    needs = {
        "py3langid": len(languages) > 1 or DETECT in languages,
        "icu4py": is_unspaced(languages),
        "simplemma": lemmas,
    }
    needed = [(package, package) for package, is_needed in needs.items() if is_needed]
    require(f"Texts of languages = {list(languages)} need", INSTALL, *needed)


def is_unspaced(languages: Sequence[str]) -> bool:
    """Whether texts may be in a language without spaces between words."""
    return not {DETECT, *UNSPACED.values()}.isdisjoint(languages)


def find_likely(text: str, languages: Sequence[str] = (DETECT,)) -> list[str]:
    """Return the probable languages of a text's beginning, likeliest first; at least one."""
    candidates = NAMES.keys() if DETECT in languages else set(languages)
    probabilities: dict[str, float] = {}
    for code, probability in _identifier().rank(text[:BEGINNING]):
        name = DETECTED_AS.get(code) or CODES.get(code, "")
        if name in candidates:
            probabilities[name] = probabilities.get(name, 0.0) + probability
    least = max(LIKELY * sum(probabilities.values()), 0.0)
    first = max(probabilities, key=probabilities.__getitem__)
    return [first, *(name for name, p in probabilities.items() if p >= least and name != first)]


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@lru_cache(CACHED_WORDS)
def lemma_of(word: str, code: str) -> str:
    """Return the base form of a word, or the word itself if its base form is unknown."""
    import simplemma
    from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

    if code not in SUPPORTED_LANGUAGES:
        return word
    lemma = normal_form(simplemma.lemmatize(word, lang=code))
    return word if len(lemma) < SHORTEST_WORD or any(map(str.isspace, lemma)) else lemma


@cache
def lower_of(language: str) -> Callable[[str], str]:
    """Return a cached `lower` for a language."""
    return lru_cache(CACHED_WORDS)(lambda word: lower(word, language))


@cache
def unspaced_runs() -> Any:
    """Return the pattern of letters and marks of scripts without spaces."""
    import regex  # late, as in `compile_pattern`

    letters = "".join(
        rf"\p{{Script={script}}}"
        for script in ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Myanmar", "Khmer")
    )
    return regex.compile(rf"([{letters}ー々]+)")


def cutting(split: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return a splitter that uses ICU's dictionaries for scripts without spaces."""
    import regex
    from icu4py.breakers import WordBreaker

    # Not words: single characters, and pure hiragana, mostly endings and particles.
    hiragana = regex.compile(r"[\p{Script=Hiragana}ー]+")

    def cut(text: str) -> list[str]:
        words: list[str] = []
        for number, piece in enumerate(unspaced_runs().split(text)):
            if number % 2 == 0:
                words += split(piece) if piece else []
            else:
                words += (
                    word
                    for word in WordBreaker(piece, "ja")
                    if len(word) >= SHORTEST_WORD and not hiragana.fullmatch(word)
                )
        return words

    return cut


def language_sentence(event: Mapping[str, Any]) -> str:
    """Describe the languages in an event "languages"; "" for other events."""
    if event["event"] != "languages":
        return ""
    shares = (f"{name.title()} ({share:.0%})" for name, share in event["languages"].items())
    text = f"documents of {event['client']} are in {', '.join(shares)}"
    return f"{text}; {event['advice']}" if event["advice"] else text
