"""`search`: finds the workspace's code by a description: indexing, updates, ranking, and failure messages."""

import fcntl
import os
import re
import sqlite3
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Stage, answers
from embedding_server import EmbeddingServer, embedding_server
from scripted import call, tools

from interlock.engine import Outcome, run_sync
from interlock.engine.diagrams import declared_edges
from interlock.state.errors import InputError

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")

CAR = '''class Garage:
    """Where what people drive stays over night."""

    def __init__(self, size: int) -> None:
        # FILL
        self.places = {}

    def remove_automobile(self, plate: str) -> None:
        del self.places[plate]


def parseHttpDate(text: str) -> float:
    return time.mktime(time.strptime(text, FORMAT))
'''.replace("# FILL", "\n        ".join(f"self.row_{n} = [None] * size" for n in range(40)))
USER = """// Greets whoever signed in.
export const greetUser = (name: string): string => {
  return `Hello, ${name}, how are you today?`
}
"""
NOTES = """# Notes

## How releases are made

Tag the commit, build the wheel and upload it from the tag, never from a branch.
"""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path / "stage", [])
    (made.work / "a.py").unlink()
    for name, text in {"src/garage.py": CAR, "web/user.ts": USER, "NOTES.md": NOTES}.items():
        write(made, name, text)
    return made


@pytest.fixture
def server() -> Generator[EmbeddingServer]:
    with embedding_server() as made:
        yield made


def write(stage: Stage, name: str, text: str | bytes, settled: bool = True) -> Path:
    """`settled`: it is old enough for its time stamp to be trusted."""
    path = stage.work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    if settled:
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def search(
    stage: Stage,
    query: str | None = None,
    *,
    env: dict[str, str] | None = None,
    told: Any = None,
    **given: Any,
) -> Outcome:
    options = replace(stage.options, env={**stage.options.env, **(env or {})})
    return run_sync("search", {"query": query, **given}, options=options, renderers=[told] if told else [])


def paths(outcome: Outcome) -> list[str]:
    assert outcome.status == "done", outcome.error
    return [hit["path"] for hit in outcome.output["results"]]


def index_file(stage: Stage) -> Path:
    (found,) = (stage.folder / "home" / "index").glob("*.db")
    return found


@pytest.mark.parametrize(
    ("query", "path", "code"),
    [
        ("where is an HTTP date parsed", "src/garage.py", "def parseHttpDate"),
        ("remove an automobile", "src/garage.py", "    def remove_automobile"),
        ("greet the user", "web/user.ts", "// Greets whoever"),
        ("how do we make a release", "NOTES.md", "# Notes\n\n## How releases"),
        ("garage", "src/garage.py", "class Garage"),
    ],
)
def test_a_question_finds_the_definition_that_answers_it(
    stage: Stage, query: str, path: str, code: str
) -> None:
    best = search(stage, query).output["results"][0]
    assert (best["path"], best["score"]) == (path, 1.0)
    assert best["code"].startswith(code)
    lines = (stage.work / path).read_text().split("\n")[best["start_line"] - 1 : best["end_line"]]
    assert best["code"] == "\n".join(lines)


def test_only_what_changed_is_indexed_again_and_nothing_where_that_is_asked(stage: Stage) -> None:
    none = search(stage, "garage", index="never")
    assert (none.output["results"], none.output["index"]["state"]) == ([], "none")
    first = search(stage, "garage").output["index"]
    assert (first["state"], first["files"], first["added"], first["removed"]) == ("indexed", 3, 3, 0)
    write(stage, "web/user.ts", USER.replace("greet", "welcome"))
    write(stage, "new.py", "def brand_new_thing():\n    return 'a value that nothing else has'\n")
    (stage.work / "NOTES.md").unlink()
    assert paths(search(stage, "brand new thing", index="never")) == []
    second = search(stage, "welcome")
    index = second.output["index"]
    assert (index["files"], index["added"], index["removed"]) == (3, 2, 1)
    assert paths(second) == ["web/user.ts"]
    assert paths(search(stage, "how do we make a release")) == []
    assert search(stage, "x", index="only").output["index"]["added"] == 0
    for name in ("first", "other"):  # of the same size, at once
        text = f"def {name}_name_of_it():\n    return 'a value that nothing else has'\n"
        write(stage, "fresh.py", text, settled=False)
        assert f"{name}_name" in search(stage, f"{name} name of it").output["results"][0]["code"]


def test_what_git_and_the_user_ignore_and_what_is_no_text_is_not_found(stage: Stage) -> None:
    (stage.work / ".git").mkdir()
    write(stage, ".gitignore", "made/\n")
    write(stage, ".geminiignore", "kept.py\n")
    names = [
        "made/a.py",
        "kept.py",
        ".env",
        ".hidden/a.py",
        "venv/a.py",
        "crate/target/a.py",
        "cache/a/b.py",
        "node_modules/a.js",
        "a.bin",
        "a.csv",
    ]
    for name in names:
        write(stage, name, CAR.replace("Garage", "Secret"))
    for mark in ("venv/pyvenv.cfg", "crate/Cargo.toml", "cache/CACHEDIR.TAG"):
        write(stage, mark, "")
    write(stage, "binary.py", b"class Secret:\x00" * 100)
    write(stage, "huge.py", CAR.replace("Garage", "Secret") * 5000)
    write(
        stage, "latin.py", "class Straße: # ".encode("latin-1") + b"a comment that is long enough to be kept"
    )
    (stage.work / "link.py").symlink_to(stage.work / "src/garage.py")
    outcome = search(stage, "Secret", limit=200)
    assert paths(outcome) == []
    assert (
        outcome.output["index"]["files"] == 6
    )  # the three, latin.py, Cargo.toml, and the binary one, so that it is known
    assert paths(search(stage, "a comment long enough")) == ["latin.py"]


def test_folders_are_left_out_by_their_marks_and_searched_where_they_are_named(stage: Stage) -> None:
    """Not by a word: `target`, `Dist` and `vendor` may be a project's own code."""
    own = ["target/a.py", "Target/a.py", "Dist/a.py", "vendor/a.py", "env/a.py"]
    made = [
        "crate/target/debug/a.py",
        "cache/a.py",
        ".github/a.py",
        "ignored/sub/a.py",
        "node_modules/x/a.py",
    ]
    for name in (*own, *made):
        write(stage, name, f"def unfolded_place():\n    return {name!r} + 'so that it is long enough'\n")
    (stage.work / ".git").mkdir()
    for mark, text in {"crate/Cargo.toml": "", "cache/CACHEDIR.TAG": "", ".gitignore": "ignored/\n"}.items():
        write(stage, mark, text)
    assert {*paths(search(stage, "unfolded place"))} == {*own}
    for name in made:
        for path in (str(Path(name).parent), name.partition("/a")[0]):
            assert paths(search(stage, "unfolded place", path=path)) == [name]
    for name in ("crate/target/debug/a.py", "cache/a.py", "node_modules/x/a.py"):
        assert paths(search(stage, "unfolded place", path=name)) == [name]
    assert {*paths(search(stage, "unfolded place"))} == {*own}
    assert {*paths(search(stage, "unfolded place", path="cache", index="never"))} == {"cache/a.py"}
    assert paths(search(stage, "unfolded place", path="crate")) == []
    (stage.work / "crate/Cargo.toml").unlink()
    assert paths(search(stage, "unfolded place", path="crate")) == ["crate/target/debug/a.py"]


@pytest.mark.parametrize(
    ("narrowed", "found"),
    [
        ({"path": "web"}, {"web/user.ts"}),
        ({"path": "./web/"}, {"web/user.ts"}),
        ({"path": "web/user.ts"}, {"web/user.ts"}),
        ({"language": "typescript"}, {"web/user.ts"}),
        ({"path": "src", "language": "typescript"}, set[str]()),
        ({}, {"web/user.ts", "webs/user.py"}),
    ],
)
def test_a_search_is_narrowed_by_folder_and_language(
    stage: Stage, narrowed: dict[str, Any], found: set[str]
) -> None:
    write(stage, "webs/user.py", "def greet_user_of_another_folder():\n    return 'hello to somebody'\n")
    assert set(paths(search(stage, "greet user", min_score=0, **narrowed))) == found


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"path": "nowhere"}, "No file or folder 'nowhere'"),
        ({"path": "../.."}, "outside the workspace"),
        ({"language": "pyton"}, "No language 'pyton'; there is python"),
    ],
)
def test_what_cannot_be_searched_is_said_in_one_line(stage: Stage, given: dict[str, Any], says: str) -> None:
    outcome = search(stage, "x", **given)
    assert outcome.exit_code == 1
    assert says in (outcome.error or {})["message"]
    assert not (stage.folder / "home" / "index").exists()
    for nothing in ("  ", None):
        with pytest.raises(InputError, match="'query' is empty"):
            search(stage, nothing, **given)


def test_any_question_is_only_words(stage: Stage) -> None:
    for query in ('"', "NEAR(", "*", "the of and", "a" * 5000, "é漢字 \U0001f600", "x OR y"):
        assert search(stage, query).status == "done"


def test_an_index_that_another_process_updates_is_waited_for_with_progress(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(stage, index="only")
    write(stage, "new.py", CAR.replace("Garage", "Newer"))
    with index_file(stage).with_suffix(".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def ends(event: Any) -> None:
            if event.type == "progress" and event.what.startswith("waiting"):
                assert (event.done, event.total) == (3, 3)
                fcntl.flock(file, fcntl.LOCK_UN)

        assert paths(search(stage, "newer", limit=1, told=ends)) == ["new.py"]
        monkeypatch.setattr("interlock.nodes.search.MOST_WAIT_S", 0)
        fcntl.flock(file, fcntl.LOCK_EX)
        told: list[Any] = []
        late = search(stage, "garage", told=told.append)
        assert "src/garage.py" in paths(late)
        assert late.output["index"]["state"] == "indexing"
        assert late.output["index"]["error"] in [e.message for e in told if e.type == "error"]


@pytest.mark.parametrize("damage", ["version", "bytes", "tables"])
def test_an_index_of_another_version_or_a_damaged_one_is_made_anew(stage: Stage, damage: str) -> None:
    search(stage, index="only")
    file = index_file(stage)
    if damage == "bytes":
        file.write_bytes(b"no database at all" * 1000)
    else:
        conn = sqlite3.connect(file)
        change = "update meta set value = '0' where key = 'version'"
        conn.execute(change if damage == "version" else "drop table meta")
        conn.commit()
        conn.close()
    assert search(stage, "garage", index="never").output["index"]["state"] == "none"
    again = search(stage, "garage", limit=1)
    assert (paths(again), again.output["index"]["added"]) == (["src/garage.py"], 3)


@pytest.mark.parametrize(
    ("end", "expected"), [("", "folder"), (".db", "file"), (".db-wal", "file"), (".lock", "file")]
)
def test_what_stands_in_the_place_of_the_index_is_one_line(stage: Stage, end: str, expected: str) -> None:
    search(stage, index="only")
    made = index_file(stage)
    place = made.with_suffix(end) if end else made.parent
    for file in [*made.parent.iterdir()]:
        file.unlink()
    if end:
        place.mkdir()
    else:
        place.rmdir()
        place.touch()
    error = search(stage, "garage").error
    assert error is not None
    assert (error["type"], "\n" in error["message"]) == ("store", False), error
    assert error["message"].startswith(f"The search index needs a {expected} at {str(place)!r}, but")
    (place.rmdir if end else place.unlink)()
    assert "src/garage.py" in paths(search(stage, "garage"))


# Meanings


def test_meanings_find_what_shares_no_word(
    stage: Stage, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a server that speaks plain HTTP, for which no certificates are read."""
    read_certificates = "ssl.SSLContext.load_verify_locations"
    monkeypatch.setattr(read_certificates, lambda *_, **__: pytest.fail("they were read"))
    assert paths(search(stage, "erase a vehicle")) == []
    stage.settings = {"search": {"embeddings": "openai:any"}}
    env = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-1"}
    outcome = search(stage, "erase a vehicle", env=env, limit=1)
    assert "remove_automobile" in outcome.output["results"][0]["code"]
    assert server.requests[0]["headers"]["Authorization"] == "Bearer sk-1"
    sent = len(server.requests)
    assert paths(search(stage, "erase a vehicle", env=env, limit=1, path="web")) == ["web/user.ts"]
    assert len(server.requests) == sent + 1, "only the question is sent: the chunks have their vectors"


def test_gemini_gives_vectors_through_its_own_client(stage: Stage, server: EmbeddingServer) -> None:
    stage.settings = {"search": {"embeddings": "gemini-embedding-001"}}
    env = {"GOOGLE_GEMINI_BASE_URL": server.url, "GEMINI_API_KEY": "key"}
    outcome = search(stage, "erase a vehicle", env=env, limit=1)
    assert "remove_automobile" in outcome.output["results"][0]["code"]
    assert [r["tasks"] for r in server.requests] == [{"RETRIEVAL_DOCUMENT"}, {"CODE_RETRIEVAL_QUERY"}]


def test_a_busy_endpoint_is_asked_again_and_a_dead_one_is_told_of(
    stage: Stage, server: EmbeddingServer
) -> None:
    stage.settings = {"search": {"embeddings": "openai:any"}}
    env = {"OPENAI_BASE_URL": server.url}
    server.answers = [429]
    assert search(stage, env=env, index="only").output["index"]["state"] == "indexed"
    write(stage, "new.py", CAR)
    server.answers = [400, 400]
    outcome = search(stage, "garage", env=env, limit=1)
    assert outcome.output["index"]["state"] == "failed"
    assert "answered 400" in outcome.output["index"]["error"]
    server.answers = [400]
    failed = search(stage, env=env, index="only")
    assert (failed.exit_code, (failed.error or {})["type"]) == (1, "index_failed")


@pytest.mark.parametrize(
    ("model", "env", "why"),
    [
        ("gemini-embedding-001", {}, "no API key"),
        ("gemini-embedding-001", {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9"}, ""),
        ("openai:any", {"OPENAI_BASE_URL": "http://127.0.0.1:9"}, "127.0.0.1:9"),
        pytest.param("openai:any", {"OPENAI_BASE_URL": "nowhere"}, "nowhere", marks=pytest.mark.sweep),
        pytest.param(
            "openai:any", {"OPENAI_BASE_URL": "http://a:b"}, "Invalid port", marks=pytest.mark.sweep
        ),
        ("model2vec:/nowhere", {}, "model2vec"),
        ("odd:any", {}, "expected a Gemini id"),
    ],
)
def test_words_are_compared_where_meanings_cannot_be_and_vectors_follow_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, server: EmbeddingServer, model: str, env: Any, why: str
) -> None:
    monkeypatch.setattr("interlock.services.index.embedding._DELAY_S", 0.001)
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    stage.settings = {"search": {"embeddings": model}}
    told: list[Any] = []
    for added in (3, 0):  # the second time only the vectors are missing
        outcome = search(stage, "garage", env=env, limit=1, told=told.append)
        index = outcome.output["index"]
        assert (paths(outcome), index["added"], index["files"]) == (["src/garage.py"], added, 3)
        assert why in index["error"]
    warnings = [event.message for event in told if event.type == "error"]
    assert warnings == [f"Only words are compared. {index['error']}"] * 2
    asked = [call("codebase_search", query=query, path="src") for query in ("garage", "greet user")]
    stage.write([tools(*asked), {"text": "found"}])
    answer, elsewhere = answers(stage.run("main", {"prompt": "go"}, env={**stage.options.env, **env}))
    assert "web/user.ts" not in elsewhere
    assert re.search(r"src/garage\.py:\d+-\d+ \(score 1\.00\)\n", answer) and "class Garage" in answer
    assert "Only words were compared" in answer
    if model == "openai:any":  # the vectors that were missing are computed once the model answers
        monkeypatch.setattr(
            "interlock.services.index.embedding.Embedder.identity", f"{model} {env['OPENAI_BASE_URL']}"
        )
        again = search(stage, "erase a vehicle", env={"OPENAI_BASE_URL": server.url}, limit=1)
        assert "remove_automobile" in again.output["results"][0]["code"]
        assert again.output["index"] | {"chunks": 0} == {
            "state": "indexed", "files": 3, "chunks": 0, "added": 0, "removed": 0,
        }  # fmt: skip


def test_a_model_that_gives_other_vectors_now_has_the_index_made_anew(
    stage: Stage, server: EmbeddingServer
) -> None:
    stage.settings = {"search": {"embeddings": "openai:any"}}
    env = {"OPENAI_BASE_URL": server.url}
    search(stage, env=env, index="only")
    server.length = 7
    write(stage, "new.py", CAR)
    index = search(stage, env=env, index="only").output["index"]
    assert (index["state"], index["files"]) == ("indexed", 4)
    assert (
        "remove_automobile" in search(stage, "erase a vehicle", env=env, limit=1).output["results"][0]["code"]
    )


def test_index_and_endpoint_get_no_secret_and_every_line_keeps_its_number(
    stage: Stage, server: EmbeddingServer
) -> None:
    key = "AKIA" + "IOSFODNN7EXAMPLE"
    pem = "-----BEGIN PRIVATE KEY-----\n" + ("MIIEvQIBADANBgkq" * 4 + "\n") * 8 + "-----END PRIVATE KEY-----"
    last = "def connect_to_storage(region):\n    return connect(PEM, KEY, region='north')\n"
    text = f'PEM = """{pem}"""\nKEY = {key!r}\nWORD = "correct-horse-battery"\n\n\n{last}'
    write(stage, "new.py", text)
    write(stage, f"{key}.py", last)
    stage.settings = {"search": {"embeddings": "openai:any"}}
    env = {"OPENAI_BASE_URL": server.url, "MY_PASSWORD": "correct-horse-battery"}
    found = search(stage, "connect to storage", env=env)
    assert paths(found)[0] == "new.py" and f"{key}.py" not in paths(found)
    best = found.output["results"][0]
    assert best["code"].endswith(last.rstrip()) and best["end_line"] == len(text.splitlines())
    (folder,) = {index_file(stage).parent}
    stored = b"".join(file.read_bytes() for file in folder.iterdir())
    sent = "\n".join(server.texts)
    assert "connect_to_storage" in sent
    for secret in (key, "MIIEvQIBADANBgkq", "correct-horse", "akiaiosfodnn", "miievq"):
        assert secret.encode() not in stored and secret not in sent


def test_a_small_model_in_a_folder_gives_vectors_here(stage: Stage, tmp_path: Path) -> None:
    static_model(tmp_path / "model")
    stage.settings = {"search": {"embeddings": f"model2vec:{tmp_path / 'model'}"}}
    outcome = search(stage, "erase a vehicle", limit=1)
    assert outcome.output["index"]["state"] == "indexed"
    assert "remove_automobile" in outcome.output["results"][0]["code"]


def static_model(folder: Path) -> None:
    """A model with the server's meanings, in model2vec's own format."""
    import numpy as np
    from embedding_server import MEANINGS
    from model2vec import StaticModel
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[UNK]", *(word for means in MEANINGS for word in means.split())]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Split("_", "removed")]
    )
    vectors = [[0.001] * 5, *([float(word in m.split()) for m in MEANINGS] for word in words[1:])]
    StaticModel(np.array(vectors, np.float32), tokenizer).save_pretrained(folder)


def test_every_edge_is_taken(stage: Stage, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.nodes.search.MOST_WAIT_S", 0)
    runs = [search(stage, "x", path="nowhere"), search(stage, "x", index="never")]
    runs += [search(stage, index="only"), search(stage, "x"), search(stage, index="only")]
    with index_file(stage).with_suffix(".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        runs.append(search(stage, index="only"))
    for number in range(201):
        write(stage, f"many/{number}.py", f"def number_{number}_of_many():\n    return {number} * {number}\n")
    runs.append(search(stage, "many"))
    stage.settings = {"search": {"embeddings": "openai:any"}}
    env = {"OPENAI_BASE_URL": server.url}
    server.answers = [400, 400]
    runs += [search(stage, env=env, index="only"), search(stage, "x", env=env)]
    taken: set[tuple[str, str, str]] = set()
    for outcome in runs:
        taken |= stage.edges(outcome)
    assert declared_edges("search") - taken == set()
