"""test_prompt_files: prompts load, report their own errors, and leave slot values as they are."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interlock.prompts import list_prompt_names, load_prompt, parse_prompt, render_prompt
from interlock.state.errors import SetupError
from interlock.state.mode import ALWAYS, GROUPS
from interlock.tools.table import TOOLS

ROOT = Path(__file__).parents[2]
HEAD = '+++\npurpose = "p"\ninputs = ["a"]\n+++\n'


def test_a_prompt_is_rendered_with_its_slots_as_what_it_is() -> None:
    one, two = (
        parse_prompt("x", HEAD + "say {{a}}, {{a}}\n"),
        "# System\nbe {{a}}\n\n# User\n## A heading\nask {{a}}\n",
    )
    parts = parse_prompt("x", HEAD + two)
    assert one.render(a="hi") == "say hi, hi"
    assert parts.render_system_and_user(a="kind") == ("be kind", "## A heading\nask kind")
    assert parse_prompt("x", (HEAD + two).replace("\n", "\r\n")) == parts, (
        "line ends of a checkout don't matter"
    )
    with pytest.raises(SetupError, match=r"parts\(\)"):
        parts.render(a="")
    with pytest.raises(SetupError, match=r"text\(\)"):
        one.render_system_and_user(a="")


@pytest.mark.parametrize("values", [{}, {"a": "1", "b": "2"}, {"b": "2"}])
def test_missing_and_extra_inputs_are_errors(values: dict[str, str]) -> None:
    with pytest.raises(SetupError, match=r"Prompt 'x' needs inputs \['a'\], got"):
        parse_prompt("x", HEAD + "{{a}}").render(**values)


@given(st.text())
@example("{{a}}")
@example(r"\1 \g<0> $a ${a} {a}")
@example("+++\n# User\n")
def test_a_slot_value_is_inert(value: str) -> None:
    prompt = parse_prompt("x", '+++\npurpose = "p"\ninputs = ["a", "b"]\n+++\n<{{a}}|{{b}}|{{a}}>')
    assert prompt.render(a=value, b="{{a}}") == f"<{value}|{{{{a}}}}|{value}>"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("no front matter", "expected TOML front matter"),
        ("+++\npurpose = 1", "expected TOML front matter"),
        ("+++\npurpose\n+++\nx", "isn't TOML"),
        ('+++\npurpose = "p"\n+++\nx', "needs the keys"),
        ('+++\npurpose = "p"\ninputs = []\nmodel = "m"\n+++\nx', "needs the keys"),
        ('+++\npurpose = " "\ninputs = []\n+++\nx', "expected one sentence"),
        ('+++\npurpose = "p"\ninputs = "a"\n+++\n{{a}}', "expected a list"),
        ('+++\npurpose = "p"\ninputs = []\n+++\n{{a}}', r"declares inputs \[\], the text uses \['a'\]"),
        ('+++\npurpose = "p"\ninputs = ["a"]\n+++\nx', r"declares inputs \['a'\], the text uses \[\]"),
    ],
)
def test_a_malformed_prompt_says_what_is_wrong(source: str, problem: str) -> None:
    with pytest.raises(SetupError, match=problem) as caught:
        parse_prompt("folder/file", source)
    assert "'folder/file'" in str(caught.value)


@pytest.mark.parametrize("name", ["main/nothing", "../state/x", "main/../main/git", "/etc/passwd", ""])
def test_a_prompt_that_is_not_shipped_is_an_error(name: str) -> None:
    with pytest.raises(SetupError):
        load_prompt(name)
    assert "because of it" in render_prompt("run/call_cancelled", reason="because of it")


@pytest.mark.parametrize("name", list_prompt_names())
def test_every_shipped_prompt_loads(name: str) -> None:
    prompt = load_prompt(name)
    assert prompt.purpose.endswith(".")
    assert prompt.user
    values = dict.fromkeys(prompt.inputs, "x")
    filled = (
        prompt.render(**values) if prompt.system is None else "".join(prompt.render_system_and_user(**values))
    )
    assert "{{" not in filled


def test_prompts_name_no_tool_or_argument_that_is_not_there() -> None:
    grouped = {tool for tools in GROUPS.values() for tool in tools}
    known = (
        grouped | ALWAYS | set(TOOLS) | {field for tool in TOOLS.values() for field in tool.args.model_fields}
    )
    for name in list_prompt_names():
        words = re.findall(r"`([a-z]+(?:_[a-z]+)+)`", load_prompt(name).user)
        assert set(words) <= known, name


def test_prompts_load_where_there_are_no_files(tmp_path: Path) -> None:
    """From a zip: the loader asks the package for its data, never the file system."""
    archive = tmp_path / "app.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for folder in ("interlock/", "interlock/state/", "interlock/prompts/", "interlock/prompts/main/"):
            packed.writestr(folder, "")
        for file in ("state/__init__.py", "state/errors.py", "prompts/__init__.py", "prompts/main/git.md"):
            packed.write(ROOT / file, f"interlock/{file}")
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); from interlock.prompts import *; "
    code += "print(list_prompt_names(), load_prompt('main/git').purpose)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.startswith("['main/git'] Git")
