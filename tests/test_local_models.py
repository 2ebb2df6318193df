"""Small models on a server of this machine: calls as JSON under a schema, found out and remembered; a short prompt."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, execute
from folders import put, tree
from local_server import Local, delta

from interlock.state.text import estimate_tokens

Interlock = Callable[..., Ended]


@pytest.fixture
def interlock(tmp_path: Path, local: Local) -> Interlock:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("the word is plum\n")
    local.is_llama()
    return partial(execute, work, "-m", "openai:qwen", env=local.env)


def said(text: str, name: str = "", **args: Any) -> str:
    """An answer under the schema."""
    call = {"call": {"name": name, "args": args}} if name else {}
    return json.dumps({**call, "text": text})


def offered(request: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The calls that a request's schema allows, and the answer without a call."""
    called, *answer = request["response_format"]["json_schema"]["schema"]["anyOf"]
    assert [*called["properties"]] == ["call", "text"] and called["required"] == ["call"]
    return called["properties"]["call"]["anyOf"], answer[0] if answer else None


def ended(done: Ended) -> dict[str, Any]:
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_calls_under_a_schema_are_run_and_their_results_are_told(interlock: Interlock, local: Local) -> None:
    local.turns += [said("I look.", "read_file", path="a.txt"), said("It is plum.")]
    done = interlock("--protocol", "json", "-o", "json", "-p", "which word?")
    assert ended(done)["response"] == "It is plum.", done.stderr
    first, second = local.asked
    assert "tools" not in first
    options, answer = offered(first)
    assert answer and [*answer["properties"]] == ["text"]
    read = next(o for o in options if o["properties"]["name"]["enum"] == ["read_file"])
    assert read["properties"]["args"]["required"] == ["file_path"]
    assert first["messages"][0] == second["messages"][0], "the fixed part comes first and stays"
    told = second["messages"][-2:]
    call = {"name": "read_file", "args": {"file_path": "a.txt"}}
    assert json.loads(told[0]["content"]) == {"text": "I look.", "call": call}
    assert told[1]["role"] == "user" and "the word is plum" in told[1]["content"]


@pytest.mark.parametrize("broken", [(), ("It must be pear: ```the word is pear",)])
def test_a_files_text_is_asked_for_by_itself_as_code(
    broken: tuple[str, ...], interlock: Interlock, local: Local, tmp_path: Path
) -> None:
    write = said("", "write_file", path="a.txt")
    local.turns += [said("", "read_file", path="a.txt"), *(turn for one in broken for turn in (write, one))]
    local.turns += [write, "It must be pear.\n```txt\nthe word\n\tis `pear`\n```\n", said("Done.")]
    done = interlock("--protocol", "json", "-y", "-o", "json", "-p", "make it pear")
    assert ended(done)["response"] == "Done.", done.stderr
    assert (tmp_path / "work/a.txt").read_text() == "the word\n\tis `pear`\n"
    asked = local.asked[-2]
    assert "response_format" not in asked
    (_, message) = asked["messages"]
    assert "make it pear" in message["content"] and "```txt\nthe word is plum\n```" in message["content"]
    told = json.loads(local.asked[-1]["messages"][-2]["content"])
    assert told["text"].strip() == "It must be pear." and told["call"]["args"]["content"].startswith(
        "the word"
    )


TEST = "from calc import half\nassert half(4) == 2\n"


def test_a_repair_never_rewrites_the_test(interlock: Interlock, local: Local, tmp_path: Path) -> None:
    """It reads the test last, and means to write that."""
    tree(tmp_path / "work", {"calc.py": "half = lambda n: n * 2\n", "test_calc.py": TEST})
    write = said("", "write_file", file_path="test_calc.py")
    local.turns += [said("", "read_file", file_path="test_calc.py"), write]
    local.turns += [said("", "read_file", file_path="calc.py"), write]
    local.turns += ["It halves.\n```python\nhalf = lambda n: n // 2\n```\n", said("Done.")]
    done = interlock("--protocol", "json", "-y", "-o", "json", "-p", "fix half, don't change the test")
    assert ended(done)["response"] == "Done.", done.stderr
    assert (tmp_path / "work/test_calc.py").read_text() == TEST
    assert (tmp_path / "work/calc.py").read_text() == "half = lambda n: n // 2\n"
    paths = [_paths(request) for request in local.asked if "response_format" in request]
    assert paths[1] == {"read_file": ["calc.py"]}, "the module that the test imports is read first"
    assert paths[-1] == {"write_file": ["calc.py"]}


def test_a_task_may_ask_for_a_test(interlock: Interlock, local: Local, tmp_path: Path) -> None:
    put(tmp_path / "work" / "test_calc.py", TEST)
    local.turns += [said("", "read_file", file_path="test_calc.py")]
    local.turns += [
        said("", "write_file", file_path="test_calc.py"),
        "So.\n```python\nassert 1\n```\n",
        said("Done."),
    ]
    done = interlock("--protocol", "json", "-y", "-o", "json", "-p", "rewrite the test in test_calc.py")
    assert ended(done)["response"] == "Done.", done.stderr
    assert (tmp_path / "work/test_calc.py").read_text() == "assert 1\n"


def _paths(request: dict[str, Any]) -> dict[str, list[str]]:
    """The files that a request's schema lets calls name."""
    found: dict[str, list[str]] = {}
    for one in offered(request)[0]:
        path = one["properties"]["args"]["properties"].get("file_path", {})
        if "enum" in path:
            found[one["properties"]["name"]["enum"][0]] = path["enum"]
    return found


def test_a_page_keeps_its_own_code_blocks(interlock: Interlock, local: Local, tmp_path: Path) -> None:
    page = "# Use\n\n```sh\nmake\n```\n\nThen:\n\n```sh\nmake run\n```\n"
    local.turns += [said("", "write_file", path="USE.md"), f"A page.\n```md\n{page}```\n", said("Done.")]
    done = interlock("--protocol", "json", "-y", "-o", "json", "-p", "write USE.md")
    assert ended(done)["response"] == "Done.", done.stderr
    assert (tmp_path / "work/USE.md").read_text() == page


FENCED = 'I look.\n```json\n{"name": "read_file", "arguments": {"path": "a.txt"}}\n```'
NATIVE = [
    delta(
        role="assistant",
        tool_calls=[
            {"index": 0, "id": "c0", "function": {"name": "read_file", "arguments": '{"file_path": "a.txt"}'}}
        ],
    ),
    delta("tool_calls"),
]


@pytest.mark.parametrize(
    ("turns", "protocol"),
    [
        ([FENCED, said("plum")], "json"),
        ([FENCED.removeprefix("I look.\n```json\n").removesuffix("\n```"), said("plum")], "json"),
        (['<tool_call>\n{"name": "read_file", "arguments": {"path": "a.txt"}}', said("plum")], "json"),
        ([NATIVE, "plum"], "native"),
    ],
)
def test_how_a_model_calls_tools_is_found_out_and_remembered(
    turns: list[Any], protocol: str, interlock: Interlock, local: Local
) -> None:
    for again in (False, True):
        local.turns += turns if not again else [said("plum") if protocol == "json" else "plum"]
        done = interlock("-o", "json", "-p", "which word?")
        assert ended(done)["response"] == "plum", done.stderr
    constrained = ["response_format" in request for request in local.asked]
    assert constrained == ([False, True, True] if protocol == "json" else [False] * 3)
    assert "the word is plum" in json.dumps(local.asked[1]["messages"])


def test_a_model_that_calls_nothing_is_constrained_from_its_third_turn_on(
    interlock: Interlock, local: Local
) -> None:
    local.turns += ["Well.", "Hm.", said("", "attempt_completion", result="done")]
    done = interlock("run", "task", "do it", "-y")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert ["response_format" in request for request in local.asked] == [False, False, True]
    assert offered(local.asked[2])[1] is None, "a task ends by a call"


def test_json_in_an_answer_is_only_text_where_calls_are_native(interlock: Interlock, local: Local) -> None:
    local.turns += [FENCED]
    assert ended(interlock("--protocol", "native", "-o", "json", "-p", "x"))["response"] == FENCED


OFFERED = {
    "main": ["read_file", "list_directory", "grep_search", "replace", "write_file", "run_shell_command"],
    "plan": ["read_file", "list_directory", "grep_search", "write_file", "exit_plan_mode"],
    "task": [
        "read_file",
        "search_files",
        "replace",
        "write_to_file",
        "execute_command",
        "attempt_completion",
    ],
}


@pytest.mark.parametrize("protocol", ["native", "json"])
@pytest.mark.parametrize("name", OFFERED)
def test_a_small_window_gets_a_short_prompt_and_the_tools_that_matter(
    name: str, protocol: str, interlock: Interlock, local: Local
) -> None:
    done = said("", "attempt_completion", result="done") if name == "task" else said("done")
    local.turns += [done]
    flags = ["--approval-mode", "plan"] if name == "plan" else ["-y"]
    command = ["run", "task", "do it", "--mode", "code"] if name == "task" else ["-p", "do it"]
    interlock(*command, *flags, "--protocol", protocol, "--max-turns", "1")
    request = local.asked[0]
    system = request["messages"][0]["content"]
    if protocol == "native":
        assert [tool["function"]["name"] for tool in request["tools"]] == OFFERED[name]
        system += json.dumps(request["tools"])
    else:
        assert re.findall(r"\n- (\w+)\(", system) == OFFERED[name]
    assert estimate_tokens(system) <= 1_200
    forbidden = {"plan": ("run_shell_command",), "task": ("grep_search",), "main": ("attempt_completion",)}
    assert not any(tool in system for tool in forbidden[name])


def test_a_prompt_may_be_asked_for(interlock: Interlock, local: Local) -> None:
    local.turns += ["done"]
    interlock("-p", "do it", "--prompt-profile", "full", "--protocol", "native")
    assert len(local.asked[0]["tools"]) > 10


def test_models_are_listed_with_what_is_known_of_them(
    interlock: Interlock, local: Local, tmp_path: Path
) -> None:
    local.turns += [NATIVE, "plum"]
    interlock("-p", "which word?")
    env = {**local.env, "GEMINI_API_KEY": "k"}
    rows = {row["model"]: row for row in json.loads(execute(tmp_path, "models", "--json", env=env).stdout)}
    assert rows["openai:qwen"] == {
        "model": "openai:qwen",
        "window": 16_384,
        "window_known": True,
        "output": None,
        "takes": [],
        "price": "0",
        "prices": [{"above": 0, **dict.fromkeys(("input", "output", "cached", "written"), 0.0)}],
        "protocol": "native",
        "tokens_per_estimate": None,
        "tried": True,
    }
    gemini = rows["gemini-2.5-pro"]
    assert (gemini["window"], gemini["price"], gemini["tried"]) == (1_048_576, "1.25 / 10", False)
    assert (gemini["output"], {"tools", "images", "PDFs", "thinking"} <= {*gemini["takes"]}) == (65_536, True)
