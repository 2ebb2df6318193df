"""loop_noise: detect noise in streamed text without a model: salad of words, syllables or tokens, and endless counting.

Real text has punctuation, and words that occur again and again. Noise lacks them: both are counted in windows of text.
"""

import re
import unicodedata
from collections import Counter

WINDOW = 1_600
"""Characters of text that are judged together."""
STEP = 200
"""Characters between two judgements."""
LONGEST_COUNT = 1_800
"""Characters that consecutive numbers may take: about 1 to 380 with commas."""
LONGEST_RUN = 4_000
"""Characters: blanks, or the same character, in a row that no answer needs."""
LONGEST_WORD, ALPHABET = 1_000, 12
"""Letters of a lower-case word without a blank, and how many letters differ; fewer are a sequence such as DNA."""
WORDS = 120
"""Words in a window that are enough to judge; a script without blanks has fewer."""
SCARCE, COMMON = 0.03, 0.14
"""Marks a word below which text has no sentences, and the share of the five commonest words that no salad has."""
SENTENCES, DISTINCT, RARE = 0.3, 0.9, 0.06
"""The same for words with marks strewn in; at least 90 % of the words differ."""

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_MARK = re.compile(r"[^\w '’-]|_")
_INDENTED = re.compile(r"(?m)^(?: {4}|\t).*\n?")
_LONG = re.compile(rf"[^\W\d_A-Z]{{{LONGEST_WORD},}}")
_NUMBERS = re.compile(r"\d+|[^\W\d_]\D*")
_TAIL = re.compile(r"\d*\Z")
_DIGITS = 18
"""Digits of a number that is counted; a longer one is none."""


class NoiseDetector:
    """Detects noise in text that streams in; the caller leaves out code blocks and resets at markup.

    None of 29,000 windows of the Declaration of Human Rights in 532 languages, of 101,000 of a Linux machine's
    documentation and of 368,000 of its source files, outside of code blocks, is taken for noise. Generated noise is
    found after 1,600 to 1,850 characters: words (from vocabularies of 500 to 12,000; also with a mark after one word
    in eight or five), syllables (of 70), letters, counting. Of salad made of a tokenizer's 50,000 pieces all of 20 are
    found within 3,000 characters, mostly 1,600; of words of 500 languages mixed, 18 of 20.

    Not found: salad of 40 syllables or fewer, words one a line or each with a comma (a list), random numbers, Chinese
    characters at random. Wrongly found: long text in rare languages without any punctuation or line break.
    """

    def __init__(self) -> None:
        self._text, self._since = "", 0
        self._digits, self._last, self._difference = "", 0, 0
        self._counted = 0
        """Characters since the numbers began to grow evenly."""

    def forget_text(self) -> None:
        """Forget the text; the numbers go on, as items of a list may be nothing else."""
        self._text, self._since = "", 0

    def feed(self, text: str) -> str:
        """Process a piece. Returns what the noise is, as in `ran on with …`; empty: none so far."""
        if self._detect_endless_counting(text):
            return "numbers that count on and on"
        while text:
            part, text = text[: STEP - self._since], text[STEP - self._since :]
            self._text = (self._text + part)[-WINDOW:]
            self._since = (self._since + len(part)) % STEP
            if (
                not self._since
                and len(self._text) == WINDOW
                and (found := describe_noise_in_window(self._text))
            ):
                return found
        return ""

    def _detect_endless_counting(self, text: str) -> bool:
        """Whether numbers with an even difference have taken too many characters; a letter ends them."""
        text = self._digits + text
        self._digits = _TAIL.findall(text)[0]  # a number may go on in the next piece
        at, end = 0, len(text) - len(self._digits)
        for match in _NUMBERS.finditer(text, 0, end):
            self._counted += match.end() - at
            at = match.end()
            number = int(match[0]) if len(match[0]) <= _DIGITS and match[0].isdecimal() else 0
            if not number or number - self._last != self._difference:
                self._difference, self._counted = number - self._last, 0
            if self._counted > LONGEST_COUNT and self._difference:
                return True
            self._last = number
        self._counted += end - at
        return False


def describe_noise_in_window(text: str) -> str:
    """What noise a window of text is; empty: it may be ordinary text."""
    text = _INDENTED.sub("", text)
    text = text if text.isascii() else "".join(c for c in text if unicodedata.category(c)[0] != "M")
    word = _LONG.search(text)
    if word and len(set(word[0])) >= ALPHABET and word[0].islower():
        return "letters without words"
    words = [found.lower() for found in _WORD.findall(text)]
    if len(words) < WORDS or text.count(" ") < len(words) / 2:
        return ""
    marks = len(_MARK.findall(text)) / len(words)
    counts = Counter(words)
    common = sum(count for _, count in counts.most_common(5)) / len(words)
    if marks <= SCARCE and common <= COMMON:
        return "words without sentences"
    if marks <= SENTENCES and common <= RARE and len(counts) >= DISTINCT * len(words):
        return "words at random"
    return ""
