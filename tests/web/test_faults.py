"""What goes wrong around the page: two tabs, decisions made elsewhere, restarts, slow readers, long runs."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from patience import until
from scripted import call, says, shell, tools
from web.lab import Lab, Person

LONG = ("-y", "--no-loop-check", "--max-turns", "999", "--max-session-turns", "999")


def waiting(somebody: Person, run: str) -> list[dict[str, Any]]:
    return somebody.fetched(f"/api/requests?run={run}")


def test_a_decision_in_a_terminal_or_another_tab_is_on_every_page_at_once(
    lab: Lab, person: Callable[..., Person]
) -> None:
    first, second = (lab.park(name, "fix it", script="edit") for name in ("first", "second"))
    somebody = person()
    here, there = somebody.page, somebody.tab()
    for page in (here, there):
        page.goto(f"{lab.address}/")
        page.wait_for_selector(f"[data-run='{second}']")
    card = f"[data-run='{first}']"
    lab.interlock("resume", first, "--approve", "all")
    here.wait_for_selector(card, state="detached")
    there.wait_for_selector(card, state="detached")
    stale = waiting(somebody, second)[0]["id"]
    there.keyboard.press("j")
    there.keyboard.press("n")
    there.keyboard.type("not now")
    there.keyboard.press("Tab")
    there.keyboard.press("Enter")
    here.wait_for_selector(f"[data-run='{second}']", state="detached")
    somebody.do_go(f"/request/{stale}")
    somebody.do_see("text=was rejected")


def test_a_decision_that_comes_too_late_says_so(lab: Lab, person: Callable[..., Person]) -> None:
    run = lab.park("late", "fix it", script="edit")
    somebody = person()
    somebody.do_go("/")
    somebody.do_see(f"[data-run='{run}']")
    somebody.page.route("**/api/requests*", lambda route: route.abort())  # so that the page can't know
    lab.interlock("resume", run, "--approve", "all")
    somebody.do_press("j y")
    somebody.do_see("#said:has-text('no longer waits')")
    somebody.complaints.clear()  # the browser notes the refused requests


ASKS = """
from typing import TypedDict
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

class State(TypedDict, total=False):
    said: str

graph = StateGraph(State).add_node("ask", lambda state: {"said": interrupt("go on?")}).add_edge(START, "ask").compile()
"""


def test_who_may_only_look_is_offered_no_act_and_reads_why_a_graph_is_not_drawn(
    lab: Lab, person: Callable[..., Person]
) -> None:
    (lab.work("looks") / "agent.py").write_text(ASKS)
    before = {*lab.runs()}
    lab.interlock("run", "agent.py:graph", "--skip-trust", work="looks")
    (run,) = {*lab.runs()} - before
    port = lab.port
    lab.kill()
    lab.serve(port, "--read-only")
    try:
        somebody = person()
        somebody.do_go(f"/run/{run}")
        somebody.do_see("text=That needs the role 'drive'. The server was started with --read-only.")
        shown = "[...document.querySelectorAll('main button')].filter(one => one.checkVisibility())"
        names = {*somebody.page.evaluate(f"{shown}.map(one => one.textContent)")}
        assert not names & {"Cancel the run", "Stop", "Resume", "Fork", "Undo changes", "Send"}, names
        assert "timeline" in names
        somebody.complaints.clear()  # the browser notes the refused drawing
    finally:
        lab.kill()
        lab.serve(port)


def test_why_a_run_cannot_start_stands_beside_its_form(lab: Lab, person: Callable[..., Person]) -> None:
    somebody = person()
    somebody.do_go("/start")
    somebody.do_see("#folder")
    somebody.do_tab("prompt")
    somebody.do_type("go")
    somebody.do_tab("folder")
    somebody.do_type("/nowhere")
    somebody.do_press("Enter")
    somebody.do_see("form [role=alert]:has-text('There is no folder')")
    somebody.complaints.clear()  # the browser notes the refusal


def test_several_questions_stand_with_their_options(lab: Lab, person: Callable[..., Person]) -> None:
    one = {"question": "Which size?", "type": "choice", "options": [{"label": "small"}, {"label": "large"}]}
    asks = says("ask_user", questions=[one, {"question": "Which name?"}])
    run = lab.park("several", "paint it", replies=[asks, {"text": "So be it."}])
    somebody = person()
    somebody.do_go("/")
    somebody.do_see(f"[data-run='{run}'] p:has-text('Which size?') + ul:has-text('large')")
    lab.interlock("resume", run, "--cancel", "all")


def test_next_leads_to_the_runs_own_next_request_before_those_of_others(
    lab: Lab, person: Callable[..., Person]
) -> None:
    earlier = lab.park("earlier", "fix earlier", script="edit")
    files = [call("write_file", file_path=name, content="") for name in ("a.py", "b.py")]
    run = lab.park("two", "write two", replies=[tools(*files), {"text": "Written."}])
    somebody = person()
    first, second = (one["id"] for one in somebody.fetched(f"/api/requests?run={run}"))
    somebody.do_go(f"/request/{first}")
    somebody.do_press("y")
    somebody.do_see(f"a[href='/request/{second}']")
    for one in (run, earlier):  # nothing is left in the inbox of the next test
        lab.interlock("resume", one, "--reject", "all")


@pytest.mark.sweep
def test_a_server_that_restarts_leaves_nothing_out_and_doubles_nothing(
    lab: Lab, person: Callable[..., Person]
) -> None:
    replies = [tools(shell(f"echo {n}"), text=f"Answer {n}.", delay_s=0.4) for n in range(12)]
    model = lab.script("steady", [*replies, {"text": "The end."}])
    somebody = person()
    given = {"prompt": "go", "model": model, "approval_mode": "yolo"}
    made = lab.post("/api/runs", workflow="main", input=given, workspace=str(lab.work("steady")))
    assert "run" in made, made
    somebody.do_go(f"/run/{made['run']}")
    for n in (2, 5, 8):
        somebody.do_see(f".said.assistant:has-text('Answer {n}.')")
        port = lab.port
        lab.kill()
        lab.serve(port)
    somebody.do_see(".said.assistant:has-text('The end.')")
    somebody.do_see(".badge.done")
    assert _answers(somebody) == [*(f"Answer {n}." for n in range(12)), "The end."]
    somebody.complaints.clear()  # the browser notes each lost connection


@pytest.mark.sweep
def test_a_page_that_is_asked_for_while_the_server_is_away_comes_with_it(
    lab: Lab, person: Callable[..., Person]
) -> None:
    run = lab.park("away", "fix it", script="edit")
    somebody = person()
    somebody.do_see(".request")
    port = lab.port
    lab.kill()
    somebody.do_tab("Runs")
    somebody.do_press("Enter")
    somebody.do_see("#away:has-text('comes back by itself')")
    lab.serve(port)
    somebody.do_see(f".runs a[href='/run/{run}']")
    somebody.complaints.clear()  # the browser notes each lost connection
    lab.interlock("resume", run, "--reject", "all")


@pytest.mark.sweep
def test_a_long_run_is_a_window_and_a_large_output_is_cut(lab: Lab, person: Callable[..., Person]) -> None:
    turns = 150
    command = "head -c 10000000 /dev/zero | tr '\\0' x"
    replies = [tools(shell(f"echo {n}"), text=f"Turn {n}.") for n in range(turns)]
    replies += [tools(shell(command), text="Large."), {"text": "The end."}]
    run = lab.park("long", "go", *LONG, replies=replies)
    somebody = person()
    somebody.do_go(f"/run/{run}")
    somebody.do_see(".said.assistant:has-text('The end.')")
    drawn = somebody.page.locator(".talk > *")
    assert drawn.count() <= 200, "only a window is drawn"
    somebody.page.locator("details.tool").last.locator("summary").click()
    somebody.do_see("details.tool[open] pre.given")
    assert somebody.page.evaluate("document.body.innerHTML.length") < 2_000_000
    for _ in range(20):
        if somebody.page.locator(".earlier:visible").count() == 0:
            break
        somebody.page.evaluate("window.scrollTo(0, 0)")
        somebody.page.wait_for_timeout(100)
    in_order = [*(f"Turn {n}." for n in range(turns)), "Large.", "The end."]
    assert _answers(somebody) == in_order, "each once"
    many = "a = 1  # each line counts, shown or not\n" * 20_000
    over = says("write_file", file_path="calc.py", content=many)  # first answered with what it would change
    waits = lab.park("whole", "write", replies=[over, over])
    somebody.do_go(f"/request/{waits}-1.1")
    somebody.do_see("h1:has-text('calc.py (+20000 −2)')")
    somebody.do_see(".diffs .plus:has-text('+20000')")
    somebody.page.locator("details.whole summary").click()
    somebody.do_see("details.whole pre:has-text('return a - b')")
    assert somebody.page.locator("details.whole pre .add").count() == 0, "a part isn't taken for all of it"


@pytest.mark.sweep
def test_a_reader_that_takes_nothing_is_cut_before_it_holds_a_megabyte(
    lab: Lab, person: Callable[..., Person]
) -> None:
    replies = [tools(shell(f"echo {n}"), text=f"{n} {'x' * 30_000}") for n in range(120)]
    run = lab.park("flood", "go", *LONG, replies=[*replies, {"text": "The end."}])
    somebody = person()
    assert lab.server
    before = _held(lab.server.pid)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", lab.port))
        head = f"GET /api/runs/{run}/events HTTP/1.1\r\nHost: 127.0.0.1:{lab.port}\r\n"
        slow.sendall(f"{head}Authorization: Bearer {lab.token}\r\n\r\n".encode())
        until(lambda: _is_closed(slow, lab.port), "the cut")
        assert _held(lab.server.pid) - before < 30_000, "KB that the server grew by"
        read = b""
        with suppress(ConnectionResetError):
            while piece := slow.recv(1 << 20):
                read += piece
    assert len(read) < 1_000_000, "what the server and the system held for it"
    somebody.do_go(f"/run/{run}")
    somebody.do_see(".said.assistant:has-text('The end.')")


def _answers(somebody: Person) -> list[str]:
    texts = "all => all.map(one => one.textContent)"
    return somebody.page.eval_on_selector_all(".talk .said.assistant", texts)


def _held(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])


def _is_closed(client: socket.socket, port: int) -> bool:
    """Whether the server's side of the connection has sent its end."""
    time.sleep(0.2)
    mine = f":{client.getsockname()[1]:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        if local.endswith(f":{port:04X}") and remote.endswith(mine):
            return state != "01"  # no longer ESTABLISHED
    return True


def test_a_run_that_parks_notifies_a_browser_that_allows_it(lab: Lab, person: Callable[..., Person]) -> None:
    somebody = person(permissions=["notifications"])
    somebody.page.add_init_script(_NOTES)
    with somebody.page.expect_response("**/api/changes"):
        somebody.do_go("/")
    assert somebody.page.locator("text=Notify me").count() == 0, "it may already"
    run = lab.park("notified", "fix it", script="edit")
    until(
        lambda: somebody.page.evaluate("window.notes.length")
    )  # the page forbids what `wait_for_function` does
    (note,) = somebody.page.evaluate("window.notes")
    assert note[1] == "Edit calc.py (+1 −1)"
    somebody.page.evaluate("window.note.onclick()")
    somebody.do_at(f"/request/{run}")
    somebody.do_see(".request.here")
    lab.interlock("resume", run, "--reject", "all")


_NOTES = """
  window.notes = [];
  document.hasFocus = () => false;
  window.Notification = class {
    static permission = Notification.permission;
    constructor(title, {body}) { window.notes.push([title, body]); window.note = this; }
    close() {}
  };
"""


def test_each_button_and_key_says_which_later_calls_it_allows(
    lab: Lab, person: Callable[..., Person]
) -> None:
    run = lab.park("scope", "fix it", script="edit")
    somebody = person()
    somebody.do_go("/")
    card = f"[data-run='{run}']"
    somebody.do_see(f"{card} [data-key='a']:has-text('Yes to all edits in this run')")
    assert not somebody.page.is_visible(f"{card} [data-key='s']"), (
        "at most four choices, and the rest behind ?"
    )
    while not somebody.page.query_selector(f"{card}.here"):
        assert not somebody.page.query_selector(".request:last-of-type.here"), "j reaches every card"
        somebody.do_press("j")
    somebody.do_press("?")
    somebody.do_see(f"{card} [data-key='s']:has-text('in this folder')")
    ways = waiting(somebody, run)[0]["asked"]["ways"]
    shown = somebody.page.locator(f"{card} button").all_text_contents()
    for way in ways:
        whole = f"{way['label']} {way['covers']}".strip().replace("`", "")
        assert any(text.startswith(whole) for text in shown), way
    lab.interlock("resume", run, "--reject", "all")
