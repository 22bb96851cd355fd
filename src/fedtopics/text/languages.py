"""Languages of texts: detection, stop words, base forms, and words of unspaced scripts."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from stop_words import AVAILABLE_LANGUAGES, LANGUAGE_MAPPING, get_stop_words

from fedtopics.extras import require
from fedtopics.text.words import LONGEST_WORD, lower, normal_form

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
    """Return a language's stop words; scikit-learn's for English."""
    if language == "english":  # the list of stop-words would drop words such as "groups"
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return frozenset(ENGLISH_STOP_WORDS)
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


@dataclass
class WordsOfLanguages:
    """Finds the words of clean texts, without stop words, as base forms if requested."""

    split: Callable[[str], list[str]]
    is_own: bool  # whether a user's function splits
    languages: tuple[str, ...]
    stop_words: str
    own_stop_words: tuple[str, ...]
    lemmas: bool
    lowercase: bool
    ngrams: tuple[int, int]

    def __post_init__(self) -> None:
        check_installed(self.languages, self.lemmas)
        if is_unspaced(self.languages):
            self.split = _cutting(self.split)
        self.languages = self.languages or (self.stop_words,)
        self._is_one_language = len(self.languages) == 1 and DETECT not in self.languages
        # Base forms depend on a word's case, so they come before lower case.
        self._lower_first = self.lowercase and (self.is_own or not self.lemmas)
        self._left_out = cache(self._find_left_out)

    def __call__(self, text: str) -> list[str]:
        likely = (
            self.languages
            if self._is_one_language
            else tuple(find_likely(lower(text) if self._lower_first else text, self.languages))
        )
        words = self._find_words(text, likely[0])
        left_out = self._left_out(likely)
        if self.lemmas:
            words = self._base_forms(words, likely[0], left_out)
        words = [word for word in words if word not in left_out]
        least, most = self.ngrams
        if most == 1:
            return words
        grams = (
            " ".join(words[start : start + n])
            for n in range(least, most + 1)
            for start in range(len(words) - n + 1)
        )
        return [gram for gram in grams if gram not in left_out]

    def _find_words(self, text: str, language: str) -> list[str]:
        words = self.split(lower(text, language) if self._lower_first else text)
        if language not in ELIDED or self.is_own or "'" not in text:
            return words
        return [
            part
            for word, prefix in ((word, ELIDED[language](word)) for word in words)
            for part in (self.split(word[prefix.end() :]) if prefix else [word])
        ]

    def _base_forms(self, words: list[str], language: str, left_out: frozenset[str]) -> list[str]:
        case = _lower(language) if self.lowercase and not self._lower_first else str
        # Longer words are in no study's vocabulary, and would fill the cache.
        usable = (word for word in words if len(word) <= LONGEST_WORD)
        return [
            case(_lemma(word, NAMES[language])) for word in usable if case(word) not in left_out
        ]

    def _find_left_out(self, likely: tuple[str, ...]) -> frozenset[str]:
        """Return stop words as they appear in texts of these languages."""
        forms = {*self._in_texts(self.own_stop_words, likely[0])}
        for language in likely if self.stop_words == OF_LANGUAGES else (self.stop_words,):
            for word in stop_words(language):
                written, words = self._read(word, language)
                forms |= {written, " ".join(words)}
        return frozenset(forms)

    def _in_texts(self, terms: Iterable[str], language: str) -> Iterator[str]:
        """Yield people's words in the form they have in texts, split if longer than an n-gram."""
        for word in terms:
            written, words = self._read(word, language)
            yield from words if len(words) > self.ngrams[1] else [" ".join(words) or written]

    def _read(self, word: str, language: str) -> tuple[str, list[str]]:
        written = lower(normal_form(word), language) if self.lowercase else normal_form(word)
        return written, [written] if self.is_own else self._find_words(written, language)

    def forms_of(self, words: Iterable[str]) -> tuple[list[str], frozenset[str]]:
        """Return people's words in the form they have in texts, once each, and any stop words."""
        forms = [*dict.fromkeys(self._in_texts(words, self.languages[0]))]
        return forms, self._left_out(self.languages).intersection(forms)


@lru_cache(CACHED_WORDS)
def _lemma(word: str, code: str) -> str:
    """Return the base form of a word, or the word itself if its base form is unknown."""
    import simplemma
    from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

    if code not in SUPPORTED_LANGUAGES:
        return word
    lemma = normal_form(simplemma.lemmatize(word, lang=code))
    return word if len(lemma) < SHORTEST_WORD or any(map(str.isspace, lemma)) else lemma


@cache
def _lower(language: str) -> Callable[[str], str]:
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


def _cutting(split: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
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
