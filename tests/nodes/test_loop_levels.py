"""Levels 1 to 3 of loop detection, with exact constants; neither chunking nor speed changes the result."""

import asyncio
import json
import random
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import lines_run

from interlock.nodes.loop_check import LoopReplay, check_due, evaluate_judgement, replay_loop_events
from interlock.nodes.loop_detectors import (
    RepetitionDetector,
    append_call_key,
    hash_call,
    repeated_cycle_length,
)
from interlock.nodes.loop_noise import NoiseDetector
from interlock.nodes.turn_reply import StreamWatch
from interlock.state.loop_check import Judgement, LoopEvent, PromptEvent, ToolCallEvent, TurnEvent
from interlock.state.messages import Message, TextDelta, ThoughtDelta, ToolCall
from interlock.state.settings import Settings

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "CHANGELOG.md", "docs/api.md", "docs/tutorial.md")]
SOURCES = [
    *sorted((ROOT / "nodes").glob("loop_*.py")),
    ROOT / "tools" / "table.py",
    ROOT / "docs" / "generated.py",
]
UNIT = "Let me think about what could be wrong with it now"
assert len(UNIT) == 50


def first(text: str, size: int = 7) -> int | None:
    """Characters fed when the loop was found."""
    chants = RepetitionDetector()
    for at in range(0, len(text), size):
        if chants.feed(text[at : at + size]):
            return min(at + size, len(text))
    return None


def naive(text: str) -> bool:
    """The rule as documented, for plain text: compare every chunk with all its occurrences."""
    places: dict[str, list[int]] = {}
    for at in range(len(text) - 49):
        found = places.setdefault(text[at : at + 50], [])
        found.append(at)
        last = found[-10:]
        if len(last) == 10 and (last[-1] - last[0]) / 9 <= 250:
            between = {text[a:b] for a, b in pairwise(last)}
            if len(between) <= 5:
                return True
    return False


# Level 2


@pytest.mark.parametrize(
    "text",
    [
        "| name " + " " * 80 + "| ok |\n|" + "-" * 90 + "|" + "-" * 40 + "|\n",
        "| " + "yes | " * 60 + "\n",
        "|:---:" * 60 + "|\n",
        "Result " + "-" * 300 + "\n",
        "Contents " + "." * 300 + " 12\n",
        "Contents " + ". " * 150 + "12\n",
        "a" + " " * 400 + "b\n",
        "─" * 400,
        "=" * 400 + "\n",
        *("—" * 400, "…" * 400, "█" * 400, "🟩" * 400, "ـ" * 400, "⠋⠙⠹⠸" * 100, "\u00a0" * 400),
        *("│ passed │ yes │\n" * 60, "║ aa ║ bb ║\n" * 60, "｜ はい ｜ はい ｜\n" * 60),
        *("\u200f| כן | עבר |\n" * 60, "\u200f- הקובץ נבדק\n" * 60, "✓ The file was checked\n" * 60),
    ],
)
def test_tables_rules_dots_and_blanks_are_no_loop(text: str) -> None:
    for size in (1, 7, 1000):
        assert first(text * 2, size) is None


FILLER = "".join(f"{i:03d}" for i in range(250))  # nothing in it occurs twice


def between(distinct: int) -> str:
    """The unit ten times, with so many texts between the occurrences."""
    return "".join(f"{UNIT} {chr(97 + min(i, distinct - 1))} " for i in range(9)) + UNIT


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # Two texts alternate between the occurrences: nothing longer than the unit repeats as often.
        *(((f"{UNIT}!{UNIT}?" * 5)[: 51 * times - 1], times == 10) for times in (9, 10)),
        *(((UNIT + FILLER[: gap - 50]) * 9 + UNIT, gap == 250) for gap in (250, 251)),
        *((between(distinct), distinct == 5) for distinct in (5, 6)),
    ],
    ids=["nine times", "ten times", "250 apart", "251 apart", "five texts between", "six texts between"],
)
def test_ten_occurrences_that_lie_250_apart_with_five_texts_between_are_a_loop(
    text: str, found: bool
) -> None:
    assert bool(first(text)) is found


def test_a_chant_is_cut_within_a_chunk_of_the_tenth_repetition() -> None:
    phrase = "I apologise for the confusion, let me try that again right now. "
    text = "Well. " + phrase * 40
    found = first(text, 20)
    assert found is not None
    tenth = len("Well. ") + 10 * len(phrase)
    assert tenth - len(phrase) < found <= tenth + 50


@pytest.mark.parametrize(
    "breaker",
    ["- item\n", "3. step\n", "## Head\n", "> said\n", "| a | b |\n", "---\n", "```\nx\n```\n", "+---+\n"],
)
def test_markup_begins_the_count_anew(breaker: str) -> None:
    half = (UNIT + " ") * 6
    assert first(half + half) is not None
    assert first(f"{half}\n{breaker}{half}") is None
    chants = RepetitionDetector()
    assert not chants.feed(half)
    chants.reset()  # at a tool call and a prompt
    assert not chants.feed(half)


def test_a_code_block_is_not_looked_at_and_what_follows_is() -> None:
    code = "    x = compute(x)  # the same line, many times in a row\n" * 30
    assert first(f"```python\n{code}```\nThat was it.\n") is None
    assert first(f"```python\n{code}```\n" + UNIT * 12) is not None
    assert first(code) is not None, "the same outside of a block"


PIECES = st.lists(st.integers(1, 90), min_size=1, max_size=30)
WORDS = st.lists(
    st.sampled_from(
        [
            *(UNIT, " ", "\n", "- ", "x" * 60, "`", "```", "|", "---", "1", ". ", "#", "good\n", "│"),
            *("\u200f", "✓", "—"),
        ]
    ),
    max_size=80,
)


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    pieces: list[str] = []
    number = 0
    while text:
        size = sizes[number % len(sizes)]
        pieces.append(text[:size])
        text, number = text[size:], number + 1
    return pieces


@given(words=WORDS, repeat=st.integers(1, 15), sizes=PIECES)
def test_what_is_found_does_not_depend_on_the_pieces(words: list[str], repeat: int, sizes: list[int]) -> None:
    text = "".join(words) * repeat + "\nend"
    in_pieces, whole = RepetitionDetector(), RepetitionDetector()
    assert any(in_pieces.feed(p) for p in cut(text, sizes)) == bool(whole.feed(text))


@given(
    st.lists(st.tuples(st.text("abc ", min_size=1, max_size=120), st.integers(1, 14)), min_size=1, max_size=8)
)
def test_plain_text_is_judged_as_the_rule_is_written(parts: list[tuple[str, int]]) -> None:
    text = "w " + "".join(text * count for text, count in parts)
    assert bool(RepetitionDetector().feed(text)) == naive(text)


def test_a_text_twice_as_long_costs_twice_as_much() -> None:
    """Pieces of 20 characters, as they stream; a text whose chunks recur without being a loop."""
    prefix = "the worker has finished the next batch of items, all of them, and now goes on with number "
    log = "".join(f"{prefix}{i}\n" for i in range(2_000))

    def fed(size: int) -> None:
        chants = RepetitionDetector()
        assert not any(chants.feed(log[i : i + 20]) for i in range(0, size, 20))

    short, long = (lines_run(lambda size=size: fed(size)) for size in (30_000, 60_000))
    assert long < 2.2 * short
    assert long < 20 * 60_000, "lines for each character"


def test_little_is_kept_of_a_long_text() -> None:
    rng = random.Random(1)
    chants = RepetitionDetector()
    for _ in range(2_000):
        chants.feed("".join(rng.choices("abcdefgh ", k=100)))
    assert len(chants._text) <= 5_000
    assert len(chants._seen) + len(chants._older) <= 4 * 5_000


# Level 1


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6])
def test_five_rounds_of_a_cycle_of_up_to_five_calls_are_a_loop_and_not_one_call_less(length: int) -> None:
    calls = [f"call {i}" for i in range(length)] * 5
    keys: list[str] = ["other 0"] * 3
    found = length if length < 6 else 0
    for number, key in enumerate(calls, 1):
        keys = append_call_key(keys, key)
        assert repeated_cycle_length(keys) == (found if number == len(calls) else 0)
    assert repeated_cycle_length(append_call_key(keys, calls[0])) == found, (
        "the keys stay: one more call is another detection"
    )


@given(st.lists(st.sampled_from("abcdef"), max_size=60))
def test_cycles_are_found_as_the_rule_is_written(names: list[str]) -> None:
    keys: list[str] = []
    for at, name in enumerate(names, 1):
        keys = append_call_key(keys, name)
        said = any(at >= 5 * k and names[at - 5 * k : at] == names[at - k : at] * 5 for k in range(1, 6))
        assert bool(repeated_cycle_length(keys)) is said


def test_a_key_holds_the_arguments_in_the_order_given() -> None:
    assert hash_call("a", {"x": 1, "y": 2}) != hash_call("a", {"y": 2, "x": 1})
    assert hash_call("a", {"x": 1}) != hash_call("b", {"x": 1})
    assert hash_call("a", {"x": 1}) == hash_call("a", {"x": 1})


# Level 3


@pytest.mark.parametrize(
    ("judgement", "loop", "interval"),
    [
        ({"confidence": 0.0, "double": 1.0}, False, 15),
        ({"confidence": 0.85}, False, 7),
        ({"confidence": 0.89, "double": 1.0}, False, 6),
        ({"confidence": 0.5, "double": 1.0}, False, 10),
        ({"confidence": 0.9}, True, 8),
        ({"confidence": 0.9, "double": 0.9}, True, 8),
        ({"confidence": 0.95, "double": 0.65}, False, 9),
        ({"confidence": 0.95, "double": None}, False, 8),
        ({"confidence": None}, False, 8),
    ],
)
def test_what_two_models_mean(judgement: Judgement, loop: bool, interval: int) -> None:
    assert evaluate_judgement(judgement, 8) == (loop, interval)


def turns(count: int) -> list[LoopEvent]:
    return [TurnEvent(type="turn") for _ in range(count)]


def test_a_model_looks_from_turn_30_on_and_then_as_often_as_it_is_sure() -> None:
    assert not replay_loop_events(turns(29), [], stops_at_due_check=True).needs_judgement
    assert replay_loop_events(turns(30), [], stops_at_due_check=True).needs_judgement
    first_look: list[Judgement] = [{"confidence": 0.2}]
    found = replay_loop_events(turns(42), first_look, stops_at_due_check=True)
    assert (found.needs_judgement, found.interval, found.next_check) == (False, 13, 43)
    assert replay_loop_events(turns(43), first_look, stops_at_due_check=True).needs_judgement


def test_another_prompt_begins_anew_and_the_same_one_does_not() -> None:
    call = ToolCallEvent(type="tool_call", name="ls")

    def after(second: str) -> LoopReplay:
        prompts = [PromptEvent(type="prompt", prompt_id=p) for p in ("1", second)]
        return replay_loop_events([prompts[0], *[call] * 4, prompts[1], call], [], stops_at_due_check=False)

    assert after("1").at_event == 6
    assert after("2").at_event is None


def test_what_the_models_saw_no_progress_in_is_named() -> None:
    """The nudge of level 3 says what was repeated, like those of the other levels."""
    calls = [
        ToolCall(id=f"{n}.0", name="read_file", args={"file_path": "a.txt", "start_line": n})
        for n in range(6)
    ]
    history = [Message(role="user", content="Fix it.")]
    for call in calls:
        history += [
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", tool_call_id=call.id, name=call.name, content="x"),
        ]
    deps = SimpleNamespace(settings=Settings(), transcript=SimpleNamespace(read=lambda _: history))
    state: Any = {"head": "h", "turn_no": 30, "judgements": [{"confidence": 1.0}]}
    out: Any = asyncio.run(check_due(state, cast(Any, SimpleNamespace(context=deps))))
    assert "6 of the last 6 calls were read_file" in out["loop_found"]["detail"]
    assert '"start_line": 5' in out["loop_found"]["detail"]


# Noise and length

RNG = random.Random(25)
VOCABULARY = sorted(set(re.findall(r"\b[a-z]{2,14}\b", "".join(topics.values()))))
"""Of Python's own reference: with our pages' words, noise would differ with each change of a page."""
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


def salad(parts: Sequence[str], count: int, between: str = " ", mark: float = 0) -> str:
    """Parts at random; `mark`: share of them followed by a punctuation mark."""
    drawn = RNG.choices(parts, k=count)
    return between.join(p + (RNG.choice(".,;:!?\n") if RNG.random() < mark else "") for p in drawn)


def letters(alphabet: str, size: int) -> str:
    return "".join(RNG.choices(alphabet, k=size))


NOISE = {
    "words": salad(VOCABULARY, 600),
    "words with marks": salad(VOCABULARY, 600, mark=0.12),
    "syllables": salad(SYLLABLES, 1_200),
    "syllables joined": salad(SYLLABLES, 1_200, ""),
    "words of syllables": salad(["".join(RNG.choices(SYLLABLES, k=3)) for _ in range(400)], 600),
    "letters": letters("abcdefghijklmnopqrstuvwxyz    ", 2_500),
    "Cyrillic letters": letters("абвгдежзийклмнопрстуфхцчшщьыэюя     ", 2_500),
    "pieces of tokens": salad([RNG.choice((" ", "", " ")) + w[:7] for w in VOCABULARY], 700, "", 0.03),
    "numbers": ", ".join(map(str, range(1, 900))),
    "numbers one a line": "\n".join(map(str, range(1, 900))),
    "empty items": ".\n".join(map(str, range(1, 900))) + ".",
    "numbers by tens": " ".join(map(str, range(1_000, 9_000, 10))),
    "numbers downwards": "; ".join(map(str, range(900, 1, -1))),
    "version": "1." * 1_250,
}
HEX, SIXTY_FOUR = "0123456789abcdef", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
ROWS = [{"id": i, "name": w, "size": RNG.randint(1, 9_999)} for i, w in enumerate(VOCABULARY[:200])]
PROSE = (ROOT / "CONTRIBUTING.md").read_text()
REAL = {
    **{str(path.relative_to(ROOT)): path.read_text() for path in DOCUMENTS},
    **{f"{path.relative_to(ROOT)} outside of a block": path.read_text() for path in SOURCES},
    "prose without marks": re.sub(r"[^\w\s'’-]|\n", " ", PROSE),
    "words in a block": f"```\n{salad(VOCABULARY, 600)}\n```\n",
    "words indented": "".join(f"    {salad(VOCABULARY, 10)}\n" for _ in range(80)),
    "numbers in a block": "```\n" + " ".join(map(str, range(900))) + "\n```\n",
    "numbers to 300": ", ".join(map(str, range(1, 301))),
    "numbers at random": " ".join(str(RNG.randint(0, 9_999)) for _ in range(800)),
    "a table of numbers": "".join(f"| {i} | {i * i} | {i**3} |\n" for i in range(300)),
    "CSV": "".join(f"{r['id']},{r['name']},{r['size']}\n" for r in ROWS),
    "minified JSON": json.dumps(ROWS, separators=(",", ":")),
    "words, one a line": "\n".join(VOCABULARY[:400]),
    "words with commas": ", ".join(VOCABULARY[:400]),
    "names": ", ".join(f"{a.title()} {b.title()}" for a, b in pairwise(VOCABULARY[:300])),
    "hashes": "\n".join(letters(HEX, 64) for _ in range(60)),
    "base64": letters(SIXTY_FOUR, 4_000),
    "a sequence": letters("acgt", 3_000),
    "files": "".join(f"src/{a}/{b}_{a}.py\n" for a, b in pairwise(VOCABULARY[:150])),
    "log": "".join(
        f"2026-03-04T05:{i % 60:02d}:00Z INFO {w}: {i * 7} ms\n" for i, w in enumerate(VOCABULARY)
    ),
    "verses": "".join(f"{a} and the {b} of the {a}\nin the {b}\n\n" for a, b in pairwise(VOCABULARY[:200])),
    "Chinese": "".join(
        letters("的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年", 30) + "，" for _ in range(90)
    ),
    "a Chinese list": "".join(chr(0x4E00 + i * 7) for i in range(2_500)),
    "Thai": "".join(letters("กขคงจฉชซญดตถทธนบปผพภมยรลวศสหอาิีึืุูเแโใไ", 25) + " " for _ in range(120)),
    "Arabic": "، ".join(letters("ابتثجحخدذرزسشصضطظعغفقكلمنهوي", 6) for _ in range(500)),
}


def stopped(text: str, limit: int = 0, thought: bool = False, loops: bool = True) -> tuple[int, str]:
    """Characters after which a reply in pieces of 3 is stopped, and why; 0: it isn't."""
    watch = StreamWatch([], [], limit, loops)
    made = ThoughtDelta if thought else TextDelta
    for at in range(0, len(text), 3):
        if why := watch.find_loop_in_delta(made(text=text[at : at + 3])):
            return at + 3, why
    return 0, ""


@pytest.mark.parametrize("kind", NOISE)
def test_noise_is_stopped_within_2500_characters(kind: str) -> None:
    begun = PROSE[:3_000] + "\n\n"
    at, why = stopped(begun + NOISE[kind][:2_500])
    assert at > len(begun) and ("ran on with" in why or kind == "version"), why


@pytest.mark.parametrize("kind", REAL)
def test_real_text_is_no_noise(kind: str) -> None:
    chants = RepetitionDetector()
    found = [
        chants.noise
        for at in range(0, len(REAL[kind]), 50)
        if chants.feed(REAL[kind][at : at + 50]) or chants.noise
    ]
    assert not any(found)


@given(kind=st.sampled_from(["words", "letters", "numbers", "numbers by tens"]), sizes=PIECES)
@settings(max_examples=30)
def test_where_noise_is_found_does_not_depend_on_the_pieces(kind: str, sizes: list[int]) -> None:
    text = f"{PROSE[:500]} 7, 14 {NOISE[kind]}"

    def found(pieces: Sequence[str]) -> tuple[int, int]:
        """Where the piece with which noise is found begins and ends."""
        noise, at = NoiseDetector(), 0
        for piece in pieces:
            at += len(piece)
            if noise.feed(piece):
                return at - len(piece), at
        return 0, 0

    begin, end = found(cut(text, sizes))
    assert begin < found(text)[1] <= end


VARIED = " ".join(f"w{n * n}," for n in range(2_000))


@pytest.mark.parametrize(
    ("text", "given", "found"),
    [
        ("so " + "\n \t" * 1_400, {}, "noise: the reply ran on with blanks alone"),
        ("```\n" + "A" * 4_100, {}, "noise: the reply ran on with the character 'A' alone"),
        ("```\n" + "A" * 4_100, {"loops": False}, ""),
        ("=" * 3_000 + "\n" + " " * 3_000 + "y", {}, ""),
        (VARIED, {"limit": 3_000}, "length: the reply ran past 3000 tokens"),
        (VARIED, {"limit": 3_000, "loops": False}, "length: the reply ran past 3000 tokens"),
        (VARIED, {"limit": 3_000, "thought": True}, ""),
        (VARIED, {"limit": 2_000, "thought": True}, "length: the thoughts ran past 4000 tokens"),
        (VARIED, {}, ""),
        (NOISE["words"], {"thought": True}, "noise: "),
        ("The same again and again. " * 90, {"thought": True}, ""),
    ],
)
def test_a_reply_that_grows_without_end_is_stopped(text: str, given: dict[str, Any], found: str) -> None:
    assert stopped(text, **given)[1].startswith(found)
    assert bool(stopped(text, **given)[1]) is bool(found)
