"""`@path` in a prompt, `--attach` and pictures that tools read: what reaches the model, and what never does."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from fake_gemini.fake import FakeGemini
from folders import put, tree
from places import Place
from scripted import call

from interlock.engine import run_sync
from interlock.services.context.references import find_references, resolve_references
from interlock.services.files.workspace import FolderWorkspace
from interlock.state.context import Reference
from interlock.state.deps import StopFlag
from interlock.state.errors import InputError


def png(size: int = 1) -> bytes:
    """A black picture of `size` times `size` pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = size.to_bytes(4, "big") * 2 + bytes((8, 0, 0, 0, 0))
    rows = zlib.compress((b"\0" + b"\0" * size) * size)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("prompt", "paths"),
    [
        ("see @a.py and @b/c.md.", ["a.py", "b/c.md"]),
        ('(@a.py), "@b.py" [@c.py]', ["a.py", "b.py", "c.py"]),
        (r"@my\ file.txt and @'x' @" + '"two words.txt"', ["my file.txt", "two words.txt"]),
        ("mail me@example.org, `@decorator` and\n```\n@fixture.x\n```\n", []),
        ("@src/**/*.py?", ["src/**/*.py"]),
        (
            "(in @app/(auth)/[[...slug]]/x.ts, [@b.py]) @src/*.{ts,tsx}.",
            ["app/(auth)/[[...slug]]/x.ts", "b.py", "src/*.{ts,tsx}"],
        ),
        ("@", []),
    ],
)
def test_references_are_found_where_words_begin_and_never_in_code(prompt: str, paths: list[str]) -> None:
    assert list(find_references(prompt)) == paths


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    tree(
        folder,
        {
            ".git/": "",
            ".gitignore": "build/\n",
            "build/out.txt": "built",
            "src/one.py": "one = 1\n",
            "src/two.py": "two = 2\n",
            "shot.png": png(),
            "fake.png": "no picture",
            "paper.pdf": b"%PDF-1.4 ...",
            ".env": "KEY=1",
        },
    )
    (tmp_path / "outside.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    return folder


def named(work: Path, prompt: str) -> dict[str, Reference]:
    return {r.path: r for r in resolve_references(StopFlag(), prompt, FolderWorkspace(work))}


def text_of(reference: Reference) -> str:
    return "".join(getattr(part, "text", "") for part in reference.parts)


def test_files_directories_and_patterns_are_shown(work: Path) -> None:
    for folder in ("node_modules/it/dist", "made"):
        put(work / folder / "a.js", folder)
    tree(work, {".gitignore": "made/\n", ".geminiignore": "!made/\n"})
    found = named(work, "@src/one.py @src @*.pdf @src/t*.py @made @node_modules/it/dist")
    assert "one = 1" in text_of(found["src/one.py"])
    assert found["src"].status == "directory"
    assert "one = 1" in text_of(found["src"]) and "two = 2" in text_of(found["src"])
    assert "two = 2" in text_of(found["src/t*.py"])
    for folder in ("node_modules/it/dist", "made"):
        assert f"--- {folder}/a.js ---\n\n{folder}\n" in text_of(found[folder])


def test_brackets_belong_to_the_path_where_a_file_has_them(work: Path) -> None:
    tree(work, {"web/[id]/page.tsx": "page", "web/[id]/(x)/a.ts": "inner", "web/other.ts": "other"})
    found = named(work, "see @web/[id]/page.tsx, @web/[id]/(x) (and @src/one.py(42)) @web/[no]/page.tsx")
    assert [(one.path, one.status) for one in found.values()] == [
        *(("web/[id]/page.tsx", "file"), ("web/[id]/(x)", "directory"), ("src/one.py", "file")),
        ("web/[no]/page.tsx", "missing"),
    ]
    assert "page" in text_of(found["web/[id]/page.tsx"]) and "other" not in text_of(
        found["web/[id]/page.tsx"]
    )
    assert "inner" in text_of(found["web/[id]/(x)"])


def test_pictures_and_papers_are_parts_and_what_only_claims_to_be_one_is_a_line(work: Path) -> None:
    found = named(work, "@shot.png @paper.pdf @fake.png")
    assert [found[n].status for n in ("shot.png", "paper.pdf", "fake.png")] == ["image", "pdf", "refused"]
    assert [getattr(p, "mime_type", "text") for p in found["shot.png"].parts] == ["text", "image/png"]
    assert "its bytes are none that models take" in found["fake.png"].reason
    assert found["fake.png"].parts == ()


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("../outside.txt", "refused", "outside the workspace"),
        ("link.txt", "refused", "outside the workspace"),
        ("/etc/passwd", "refused", "outside the workspace"),
        (".env", "refused", "tools may not touch"),
        ("build/out.txt", "refused", "'build/out.txt' is ignored by git"),
        ("build", "refused", "'build' is ignored by git"),
        ("build/", "refused", "'build/' is ignored by git"),
        ("build/**/*.txt", "refused", "'build/**/*.txt' is ignored by git"),
        ("kept", "refused", "'kept' is kept from tools by an ignore file"),
        ("none", "missing", "No file matches 'none'"),
        ("src/*.ts", "missing", "No file matches 'src/*.ts'"),
        ("src/onee.py", "missing", "Did you mean 'src/one.py'"),
        ("nowhere/x.py", "missing", "There is no directory 'nowhere'"),
    ],
)
def test_what_is_not_shown_says_why(work: Path, path: str, status: str, says: str) -> None:
    (work / ".geminiignore").write_text("kept/\n")
    for folder in ("kept", "none"):
        (work / folder).mkdir()
    (work / "kept/a.txt").touch()
    found = named(work, f"look at @{path}")[path]
    assert (found.parts, found.status, says in found.reason) == ((), status, True), found.reason


def test_the_end_of_a_path_is_enough_where_only_one_file_has_it(work: Path) -> None:
    tree(work, {"build/one.py": "", "src/auth/login.py": "login = 1\n"})
    found = named(work, "@login.py @auth/login.py @one.py")
    assert list(found) == ["src/auth/login.py", "src/one.py"]
    assert "login = 1" in text_of(found["src/auth/login.py"])
    put(work / "web/login.py", "")
    found = named(work, "@login.py")["login.py"]
    assert (found.status, found.parts) == ("missing", ())
    assert "could be 'src/auth/login.py', 'web/login.py'" in found.reason


def test_a_word_that_names_nothing_is_a_word(work: Path) -> None:
    assert named(work, "thanks @alice, see @src") == named(work, "@src")


def test_what_does_not_fit_is_named_and_the_same_prompt_gives_the_same_parts(work: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (work / name).write_text("x" * 1000 + "\n" * 1 + ("y" * 1500 + "\n") * 90)
    found = named(work, "@a.txt @b.txt @c.txt")
    assert found["c.txt"].status == "left out"
    assert sum(len(text_of(r)) for r in found.values()) < 210_000
    assert found == named(work, "@a.txt @b.txt @c.txt")


def sent(fake: FakeGemini, request: int = 0) -> list[dict[str, Any]]:
    """The last content's parts."""
    return fake.requests[request].contents[-1]["parts"]


def test_a_picture_reaches_the_model_from_the_prompt_from_a_flag_and_from_a_tool(
    tmp_path: Path, fake_gemini: FakeGemini
) -> None:
    place = Place(tmp_path / "place")
    (place.work / "shot.png").write_bytes(png())
    (tmp_path / "other.png").write_bytes(png(2))
    look = {"calls": [call("read_file", file_path="shot.png")]}
    fake_gemini.play({"replies": [look, {"text": "black"}]})
    given = place.options(
        fake_gemini.env, attach=(tmp_path / "other.png",), overrides={"model": {"skipNextSpeakerCheck": True}}
    )
    outcome = run_sync("main", {"prompt": "what is on @shot.png"}, options=given)
    assert outcome.output["response"] == "black"
    first = [p["inlineData"] for p in sent(fake_gemini) if "inlineData" in p]
    assert [base64.b64decode(d["data"]) for d in first] == [png(2), png()]
    assert [d["mimeType"] for d in first] == ["image/png"] * 2
    texts = [p["text"] for p in sent(fake_gemini) if "text" in p]
    assert texts.index("what is on @shot.png") < next(i for i, t in enumerate(texts) if "attached" in t)
    answer = sent(fake_gemini, 1)
    assert "picture (image/png" in answer[0]["functionResponse"]["response"]["output"]
    assert base64.b64decode(answer[1]["inlineData"]["data"]) == png()
    assert "black" in json.dumps(outcome.output["history"])
    assert png(2) not in json.dumps(outcome.output["history"]).encode()


def test_an_attachment_of_no_use_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    (tmp_path / "fake.png").write_text("no picture")
    with pytest.raises(InputError, match=r"--attach .*fake.png.*none that models take"):
        place.run("context", {"prompt": "go"}, attach=(tmp_path / "fake.png",))
