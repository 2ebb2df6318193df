"""test_redaction: which texts are secrets, whole or in pieces, and which aren't."""

import base64
import hashlib
import json
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interlock.services.secrets.redaction import LONGEST, SHAPES, RedactingStream, Redactor
from interlock.state.calls import ToolResult
from interlock.state.messages import DataPart, Message, TextPart, ToolCall

PEM_LINES = "\n".join(["Ab3/" * 16] * 24)
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{PEM_LINES}\nAb3=\n-----END RSA PRIVATE KEY-----"
KINDS = {
    "aws-key-id": ["AKIAIOSFODNN7EXAMPLE", "ASIAQWERTYUIOPASDFGH"],
    "github-token": ["ghp_" + "aB3d" * 9, "gho_" + "aB3d" * 9, "github_pat_" + "aB3_" * 20],
    "gitlab-token": ["glpat-aB3_eF-hIjKlMnOpQrSt"],
    "google-key": ["AIzaSyA1234567890_bcdefghijklmnopqrstuv"],
    "google-token": ["ya29.a0AfH6SMBx-1234567890abcdef"],
    "slack-token": ["xoxb-123456789012-abcdefABCDEF", "xapp-1-A0123-456-0a1b2c3d4e"],
    "stripe-key": ["sk_live_4eC39HqLyjWDarjtT1zdp7dc", "rk_test_4eC39HqLyjWDarjtT1zdp7dc"],
    "openai-key": ["sk-proj-" + "aB3_-" * 20, "sk-" + "aB3d" * 12],
    "anthropic-key": ["sk-ant-api03-" + "aB3_-" * 18],
    "huggingface-token": ["hf_" + "aBcD" * 9],
    "npm-token": ["npm_" + "aB3d" * 9],
    "sendgrid-key": ["SG." + "aB3_-x" * 3 + "aB3_." + "aB3_-" * 8 + "abc"],
    "jwt": ["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"],
    "private-key": [PEM, PEM.replace("\n", "\\n"), PEM.replace("\n", "\r\n")],
}
SECRETS = [text for texts in KINDS.values() for text in texts]
OWN = {"MY_TOKEN": "pläin-value 1/2", "OTHER": 'with"quote\\and\nline'}
REDACT = Redactor(OWN)
PLAIN = st.text(st.sampled_from("ab Z09-_./:=\n\t\"'{}[]é漢 sgAex"), max_size=40)


@pytest.mark.parametrize(("kind", "secret"), [(k, s) for k, texts in KINDS.items() for s in texts])
def test_each_kind_is_found_and_named(kind: str, secret: str) -> None:
    for around in ("{}", "key={}", '"{}",', "a {} b", "x:{};", "({})"):
        assert SHAPES(around.format(secret)) == around.format(f"[redacted:{kind}]")


BASIC = '"authorization": "Basic {}"'
HOOK, QUERY = "https://hooks.slack.com/{}", "http://x/?key={}&a=1"


@pytest.mark.parametrize(
    ("around", "secret", "kind"),
    [
        ("postgres://me:{}@db/x", "s3cret", "url-password"),
        ("redis://:{}@db", "s3cret", "url-password"),
        ("Authorization: Bearer {}", "a1b2c3d4e5f6g7h8i9", "authorization"),
        (BASIC, "dXNlcjpwYXNzd29yZDE=", "authorization"),
        ("AWS_SECRET_ACCESS_KEY={}", "aB3/" * 10, "aws-secret-key"),
        ('secretAccessKey: "{}"', "aB3/" * 10, "aws-secret-key"),
        ("AccountKey={};", "aB3/" * 21 + "aB==", "azure-key"),
        (HOOK, "services/T0AAAAAA/B0AAAAAA/" + "aB3d" * 6, "slack-webhook"),
        (QUERY, "AIzaSyA1234567890_bcdefghijklmnopqrstuv", "google-key"),
    ],
)
def test_what_only_its_place_makes_a_secret(around: str, secret: str, kind: str) -> None:
    assert SHAPES(around.format(secret)) == around.format(f"[redacted:{kind}]")


@pytest.mark.parametrize(
    "text",
    [
        hashlib.sha256(b"x").hexdigest(),
        hashlib.sha1(b"x").hexdigest(),
        str(uuid.UUID(int=2**127 + 12345)),
        base64.b64encode(bytes(range(256)) * 40).decode(),
        "http://localhost:8080/a@b http://h:80,me@x.org git@github.com:a/b.git",
        "postgres://user:password@host postgres://u:$PASS@h mysql://{user}:{pw}@h root://root:root@h",
        "Authorization: Bearer YOUR_ACCESS_TOKEN_HERE",
        'if text.startswith("-----BEGIN PRIVATE KEY-----"): pass',
        "-----BEGIN CERTIFICATE-----\n" + "Ab3/" * 16 + "\n-----END CERTIFICATE-----",
        "ssh-ed25519 " + "A" * 68 + " me@host",
        "task-" + "a" * 40 + " desk-proj-" + "b" * 40 + " sk-learn risk-adjusted",
        "pk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "eyJhbGciOiJIUzI1NiJ9 data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
        "the password is at least 8 characters; token = get_token(); api_key: str",
    ],
)
def test_what_only_looks_a_little_like_one_stays(text: str) -> None:
    assert SHAPES(text) == text


@given(PLAIN, st.lists(st.one_of(PLAIN, st.sampled_from([*SECRETS, *OWN.values()])), max_size=8))
def test_redacting_twice_or_a_text_without_a_secret_changes_nothing(plain: str, parts: list[str]) -> None:
    once = REDACT("".join(parts))
    assert REDACT(once) == once
    assert REDACT(plain) == plain


@given(PLAIN, st.sampled_from([*SECRETS, *OWN.values()]), PLAIN, st.data())
@example("", PEM, "", None)
def test_a_planted_secret_is_found_in_any_chunking(
    before: str, secret: str, after: str, data: st.DataObject | None
) -> None:
    text = f"{before} {secret}\n{after}"
    cuts = [*range(len(text))]
    if data is not None:
        cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    stream, shown, at = RedactingStream(REDACT), "", 0
    for cut in [*cuts, len(text)]:
        shown += stream.feed(text[at:cut])
        at = cut
    shown += stream.flush()
    assert secret not in shown
    assert shown == REDACT(text)


def test_bytes_are_found_in_any_chunking_and_others_stay_as_they_are() -> None:
    redact = REDACT.for_latin1_bytes()
    raw = b"\xff\xfe " + OWN["MY_TOKEN"].encode() + b" \x80 " + SECRETS[0].encode() + b"\xc3"
    for size in range(1, 30):
        stream = RedactingStream(redact)
        pieces = [raw[i : i + size].decode("latin-1") for i in range(0, len(raw), size)]
        shown = "".join([*map(stream.feed, pieces), stream.flush()]).encode("latin-1")
        assert shown == b"\xff\xfe [redacted:MY_TOKEN] \x80 [redacted:aws-key-id]\xc3"


def test_ordinary_output_is_shown_at_once() -> None:
    stream = RedactingStream(REDACT)
    for piece in ("Continue? ", "....", " 10%", "\rDownloading", " done\n", "x" * 200_000):
        assert stream.feed(piece) == piece


def test_a_stream_holds_no_more_than_it_must() -> None:
    stream, given_, shown = RedactingStream(SHAPES), 0, 0
    for piece in ["://" + "a" * 997] * 300:
        given_ += len(piece)
        shown += len(stream.feed(piece))
        assert given_ - shown <= 3 * LONGEST


def test_a_secret_in_an_endless_line_is_found_wherever_it_is_cut() -> None:
    secret = SECRETS[2]
    for offset in range(20):
        line = "http://" + "a" * (23_990 + offset) + ";" + secret + ";" + "b" * 60_000
        stream = RedactingStream(SHAPES)
        shown = "".join([*(stream.feed(line[i : i + 977]) for i in range(0, len(line), 977)), stream.flush()])
        assert shown == line.replace(secret, "[redacted:github-token]")


def test_values_are_found_as_they_are_in_json_and_in_urls() -> None:
    """Short ones and those that a mark is made of are left alone; switched off, nothing is changed."""
    assert REDACT(json.dumps({"a": OWN["OTHER"]})) == '{"a": "[redacted:OTHER]"}'
    assert REDACT("http://x/?t=pl%C3%A4in-value%201%2F2") == "http://x/?t=[redacted:MY_TOKEN]"
    redact = Redactor({"A_TOKEN": "short", "B_TOKEN": "redacted", "C_TOKEN": "B_TOKEN]"})
    assert redact("short redacted B_TOKEN]") == "short redacted B_TOKEN]"
    off = Redactor(OWN, enabled=False)
    assert off(SECRETS[0] + OWN["MY_TOKEN"]) == SECRETS[0] + OWN["MY_TOKEN"]
    assert RedactingStream(off).feed("AKIA") == "AKIA"


def test_records_and_results_keep_what_runs_and_lose_what_is_said() -> None:
    secret = SECRETS[0]
    call = ToolCall(id="1", name="x", args={"a": secret})
    message = Message(role="assistant", content=f"a {secret}", thought=secret, tool_calls=(call,))
    shown = SHAPES.redact_message(message)
    assert (shown.content, shown.thought) == ("a [redacted:aws-key-id]", "[redacted:aws-key-id]")
    assert shown.tool_calls == message.tool_calls
    image = DataPart(type="image", mime_type="image/png", data=secret)
    parts = Message(role="user", content=(TextPart(text=secret), image))
    assert SHAPES.redact_message(parts).content == (TextPart(text="[redacted:aws-key-id]"), image)
    plain = Message(role="user", content="nothing")
    assert SHAPES.redact_message(plain) is plain
    result = ToolResult(
        status="error", content=secret, error={"type": "x", "message": secret}, meta={"diff": [secret]}
    )
    assert secret not in SHAPES.redact_result(result).model_dump_json()


@pytest.mark.parametrize(
    "text",
    [
        "lorem ipsum :// sk- dolor\n" * 40_000,
        "sk-" * 320_000,
        "eyJ-" * 250_000,
        "://a:" * 200_000,
        PEM[:200] * 5_000,
    ],
)
def test_a_long_text_takes_linear_time(text: str) -> None:
    SHAPES(text)  # quadratic work on a megabyte would take hours
