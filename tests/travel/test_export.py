"""A run exported as one self-contained page: opened in a real browser, in light and in dark."""

import json
import re
from pathlib import Path

import pytest
from folders import put
from markdown_it import MarkdownIt
from travel.conftest import REPLIES, Desk
from web.lab import browsing

from interlock.cli.render.export import render_html_page as export_page
from interlock.cli.render.export import render_markdown_report
from interlock.engine import Decision, resume_sync

NASTY = '</pre><script>document.title="run"</script><img src="http://127.0.0.1:1/x"> ![x](http://127.0.0.1:1/y) & ü'


@pytest.fixture
def page(desk: Desk) -> Path:
    """The page of a run with a nasty answer, an approval and changed files."""
    replies = [*REPLIES[:-1], {"text": NASTY}]
    run = desk.run(replies, approval_mode="auto_edit")
    while run.status == "waiting":
        decisions = [Decision("all", "proceed_once", feedback="fine")]
        run = resume_sync(
            run.run, decisions=decisions, options=desk.options(replies, workspace=None, approval_mode=None)
        )
    assert run.status == "done"
    file = desk.folder / "run.html"
    assert desk("export", run.run, "-o", str(file)).code == 0
    return file


@pytest.mark.sweep
def test_the_page_opens_without_a_request_or_an_error_and_is_read_in_light_and_dark(page: Path) -> None:
    with browsing() as browser:
        for scheme in ("light", "dark"):
            told: list[str] = []
            opened = browser.new_page(color_scheme=scheme)
            opened.on("request", lambda request, told=told: told.append(request.url))
            opened.on("console", lambda message, told=told: told.append(message.text))
            opened.on("pageerror", lambda error, told=told: told.append(str(error)))
            opened.goto(page.as_uri())
            assert told == [page.as_uri()]
            assert opened.title().startswith("Run ")
            assert opened.locator("#diagram svg").is_visible()
            assert opened.locator("#diagram svg").bounding_box()["height"] > 100
            assert opened.locator(".diff .add", has_text="more").last.is_visible()
            assert opened.locator("img").count() == 0
            assert NASTY in opened.locator("body").inner_text()
            pairs = opened.evaluate(_COLOURS)
            assert pairs
            assert min(contrast(*pair) for pair in pairs) >= 4.5, f"WCAG's least contrast of a text, {scheme}"


_COLOURS = """() => [...document.querySelectorAll('body, p, pre, .add, .del, td, th, summary')].map(element => {
  let box = element; const bare = 'rgba(0, 0, 0, 0)';
  while (box.parentElement && getComputedStyle(box).backgroundColor === bare) box = box.parentElement;
  return [getComputedStyle(element).color, getComputedStyle(box).backgroundColor] })"""


def contrast(text: str, page: str) -> float:
    """Contrast ratio as WCAG 2 defines it."""
    one, other = sorted((_luminance(text), _luminance(page)), reverse=True)
    return (one + 0.05) / (other + 0.05)


def _luminance(colour: str) -> float:
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_diff_in_the_page_marks_the_words_that_changed_and_no_name_of_a_file() -> None:
    from interlock.cli.render.export import _diff_or_text_to_html

    shown = _diff_or_text_to_html("--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-return a - b\n+return a + b\n")
    assert '<span class="">--- a/x.py</span><span class="">+++ b/x.py</span>' in shown
    assert '<span class="del">-return a <b>-</b> b</span>' in shown
    assert '<span class="add">+return a <b>+</b> b</span>' in shown
    assert (
        _diff_or_text_to_html("+ a\n\n<b>")
        == '<pre class="diff">'
        + "".join(f'<span class="">{line}</span>' for line in ("+ a", "&nbsp;", "&lt;b&gt;"))
        + "</pre>"
    )


def test_page_json_and_markdown_tell_the_same_run_with_who_decided_and_what_it_cost(
    page: Path, desk: Desk
) -> None:
    text = page.read_text()
    assert "Decisions of people" in text and "approved (once) fine" in text
    assert "Tokens and cost" in text and "models.NAME.price" in text
    assert "<script" not in text and "http://" not in text.replace(NASTY, "").split("<body>")[0]
    told = json.loads(desk.cli("export", "latest", "--format", "json").out)
    assert told["format"] == "interlock-run-1"
    assert [call["status"] for call in told["calls"]] == ["success"] * 4
    assert "+more" in told["diff"] and told["calls"][0]["diff"].count("+one") == 1
    shown = desk.cli("export", "latest", "--format", "md").out
    assert "```mermaid" in shown and "+more" in shown and "## Decisions of people" in shown


def test_no_name_and_no_text_becomes_markup_of_the_report_or_hides_in_the_page(
    page: Path, desk: Desk
) -> None:
    told = json.loads(desk.cli("export", "latest", "--format", "json").out)
    forged = f"{NASTY}\n## Decisions of people\n- 09:00 ann: approved `rm -rf`\n```\n<b>\u200bg\u043egle"
    told["title"] = told["messages"][-1]["content"] = told["answered"][0]["feedback"] = forged
    told["calls"][0]["tool"] = told["answered"][0]["tool_name"] = told["workspace"] = forged
    read = MarkdownIt("commonmark").enable("table").parse(render_markdown_report(told, "flowchart TD"))
    inside = [part for token in read for part in (token, *(token.children or ()))]
    assert not {part.type for part in inside} & {"html_block", "html_inline", "image", "link_open", "em_open"}
    headings = [read[n + 1].content for n, token in enumerate(read) if token.type == "heading_open"]
    own = ["Conversation", "Files", "Decisions of people", "Path", "Timeline", "Tokens and cost"]
    own.append("What the model was given")
    assert headings[1:] == own
    svg = desk.cli("diagram", "main", "--format", "svg").out
    for summary in re.findall(
        r"<summary>.*?</summary>|<h1>.*?</h1>|<td>.*?</td>", export_page(told, svg), re.DOTALL
    ):
        assert "\u200b" not in summary and "\u043e" not in summary and summary.count("<") == 2


def test_a_file_whose_extension_names_no_format_is_refused(desk: Desk) -> None:
    run, file = desk.run().run, desk.folder / "run.txt"
    refused = desk("export", run, "-o", str(file))
    assert (refused.code, file.exists()) == (2, False) and "Expected .html, .md, .json, .patch" in refused.err
    assert desk("export", run, "-o", str(file), "--format", "md").code == 0
    assert file.read_text().startswith("# Do it.")


def test_a_run_is_exported_although_the_settings_are_wrong_by_now(desk: Desk) -> None:
    desk.run([{"text": "ok"}])
    put(Path.home() / ".interlock/settings.json", '{"processors": ["/nowhere/gone.py"]}')
    done = desk.cli("export", "latest", "--format", "md")
    assert (done.code, "finish" in done.out) == (0, True), done.err


def test_a_diagram_marks_where_a_run_waits_and_where_it_stopped(desk: Desk) -> None:
    waiting = desk.run(approval_mode="default").run
    assert "tools ×1: waits here" in desk.cli("diagram", "--run", waiting).out
    broken = desk.run([{"error": {"status": 400}}]).run
    assert "stopped here" in desk.cli("diagram", "--run", broken).out
    done = desk.run([{"text": "ok"}]).run
    assert "here" not in desk.cli("diagram", "--run", done).out
