"""secret_shapes: what keys and passwords look like, as strictly as their makers let us say it.

Each shape begins with a fixed text, so that looking for it costs a search for that text where there is none, and
its repeats are bounded, so that no text takes longer than linear time. Hashes, UUIDs and base64 data have no shape.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

LONGEST = 16_000
"""Characters of the longest match: a private key."""
_SEPARATOR = r"(?:\s|\\[nr])"
_PLACEHOLDER = re.compile(r"[\[{$<%*]|(?:password|passwd|pass|pwd)$|[xX.*]+$|\d{1,5}[,;)\]|]|\d{1,5}$")
"""What stands in a URL where a password would: a variable, a word for it, a port."""


class Span(NamedTuple):
    """One secret in a text: characters from `start` up to `end`, and what to call it."""

    start: int
    end: int
    name: str


class Shape(NamedTuple):
    """`pattern` begins with the text `start`; its group 1, where it has one, is the secret."""

    kind: str
    start: str
    pattern: re.Pattern[str]
    harmless: Callable[[re.Match[str]], bool] = lambda _: False


def _token(kind: str, start: str, rest: str, before: str = "A-Za-z0-9", after: str = "A-Za-z0-9_") -> Shape:
    """A run of characters that isn't part of a longer word."""
    head = re.escape(start)
    return Shape(kind, start, re.compile(rf"{head}(?<![{before}]{head}){rest}(?![{after}])"))


def _url(found: re.Match[str]) -> bool:
    return _PLACEHOLDER.match(found[1]) is not None or found[0].startswith(f"://{found[1]}:")


def _wordy(found: re.Match[str]) -> bool:
    """`Bearer YOUR_TOKEN_GOES_HERE`"""
    return not any(char.isdigit() for char in found[1])


def _after(
    kind: str, word: str, rest: str, harmless: Callable[[re.Match[str]], bool] = lambda _: False
) -> Shape:
    """What follows a word on its line."""
    return Shape(kind, word, re.compile(word + r"[\"']?[ \t]{0,4}[:=]>?[ \t]{0,4}[\"']?" + rest), harmless)


_BEARER = r"(?:[Bb]earer|[Bb]asic|[Tt]oken)[ \t]{1,4}([A-Za-z0-9._~+/=-]{16,2048})"
_AWS_SECRET = r"([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
_PEM = (
    r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_SEPARATOR}{{1,8}}[A-Za-z-]{{1,20}}: [^\r\n\\]{{0,200}}){{0,4}}"
    rf"{_SEPARATOR}{{1,8}}[A-Za-z0-9+/=]{{32,6000}}"
    rf"(?:{_SEPARATOR}{{1,8}}[A-Za-z0-9+/=]{{16,76}}){{0,100}}"
    rf"(?:(?:{_SEPARATOR}{{1,8}}[A-Za-z0-9+/=]{{1,76}}){{0,2}}{_SEPARATOR}{{0,8}}-----END [A-Z0-9 ]{{1,60}}-----)?"
)
_SLACK = ("xoxa", "xoxb", "xoxe", "xoxo", "xoxp", "xoxr", "xoxs")
IN_A_WORD = (
    *(_token("aws-key-id", p, "[A-Z2-7]{16}", after="A-Za-z0-9") for p in ("AKIA", "ASIA", "ABIA", "ACCA")),
    _token("aws-session-token", "IQoJb3JpZ2lu", "[A-Za-z0-9/+=]{80,2048}"),
    *(_token("github-token", f"gh{c}_", "[A-Za-z0-9]{36,255}") for c in "pousr"),
    _token("github-token", "github_pat_", "[A-Za-z0-9_]{36,255}"),
    _token("gitlab-token", "glpat-", "[A-Za-z0-9_-]{20,64}", after="A-Za-z0-9_-"),
    _token("google-key", "AIza", "[A-Za-z0-9_-]{35}", after="A-Za-z0-9_-"),
    _token("google-token", "ya29.", "[A-Za-z0-9_-]{20,1024}"),
    _token("google-secret", "GOCSPX-", "[A-Za-z0-9_-]{28}", after="A-Za-z0-9_-"),
    *(_token("slack-token", f"{p}-", "[A-Za-z0-9-]{10,250}") for p in _SLACK),
    _token("slack-token", "xapp-", "[0-9]-[A-Za-z0-9-]{10,250}"),
    Shape(
        "slack-webhook",
        "hooks.slack.com/",
        re.compile(r"hooks\.slack\.com/(services/T\w{6,20}/B\w{6,20}/\w{16,40})"),
    ),
    *(
        _token("stripe-key", f"{p}_{m}_", "[A-Za-z0-9]{16,247}")
        for p in ("sk", "rk")
        for m in ("live", "test")
    ),
    _token("stripe-secret", "whsec_", "[A-Za-z0-9+/=]{32,88}"),
    *(_token("openai-key", f"sk-{p}-", "[A-Za-z0-9_-]{20,250}") for p in ("proj", "svcacct", "admin")),
    _token("anthropic-key", "sk-ant-", "[A-Za-z0-9_-]{20,250}"),
    _token("openrouter-key", "sk-or-", "[A-Za-z0-9_-]{32,100}"),
    _token("openai-key", "sk-", "[A-Za-z0-9]{32,100}"),
    _token("groq-key", "gsk_", "[A-Za-z0-9]{40,64}"),
    _token("xai-key", "xai-", "[A-Za-z0-9]{64,100}"),
    _token("huggingface-token", "hf_", "[A-Za-z0-9]{30,60}"),
    _token("npm-token", "npm_", "[A-Za-z0-9]{36}"),
    _token("pypi-token", "pypi-AgE", "[A-Za-z0-9_-]{50,500}"),
    _token("sendgrid-key", "SG.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _token("digitalocean-token", "dop_v1_", "[a-f0-9]{64}"),
    _token("databricks-token", "dapi", "[a-f0-9]{32}"),
    _token("azure-key", "AccountKey=", "([A-Za-z0-9+/]{86}==)"),
    _token("jwt", "eyJ", r"[\w-]{8,2048}+\.eyJ[\w-]{8,4096}+\.[\w-]{10,2048}", before="A-Za-z0-9_-"),
    Shape("url-password", "://", re.compile(r"://[^\s/:@?#\"'<>]{0,256}+:([^\s/@\"'<>]{1,256}+)@"), _url),
)
"""Without a blank in them."""
AFTER_A_WORD = (
    *(_after("authorization", w, _BEARER, _wordy) for w in ("uthorization", "UTHORIZATION")),
    *(
        _after("aws-secret-key", w, _AWS_SECRET)
        for w in ("ecret_access_key", "ECRET_ACCESS_KEY", "ecretAccessKey")
    ),
)
"""What makes them a secret is a word before them, on the same line."""
OVER_LINES = Shape("private-key", "-----BEGIN ", re.compile(_PEM))
_ALL = (*IN_A_WORD, *AFTER_A_WORD, OVER_LINES)


def shapes_in(text: str) -> Iterator[Span]:
    """Every secret that has a shape; they may overlap, and come in no order."""
    for shape in _ALL:
        if shape.start in text:
            for found in shape.pattern.finditer(text):
                if not shape.harmless(found):
                    yield Span(*found.span(shape.pattern.groups), shape.kind)
