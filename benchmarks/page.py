"""page: how fast the page of `interlock serve` is, and what a killed server costs.

`python -P benchmarks/page.py [PART…]` needs Chromium. The figures are of this machine at this moment; the load average
stands beside them.
"""

import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from fake_gemini.fake import FakeGemini
from fake_gemini.handler import Handler
from patience import until
from web.lab import Lab, Person, browsing

RUNS, TOKENS, KILLS, TURNS = 5, 80, 200, 1000


EVENT = Handler._event


def stamped(self: Handler, data: bytes) -> None:
    """Send the time instead of a token."""
    chunk = json.loads(data)
    for part in chunk["candidates"][0].get("content", {}).get("parts", []):
        part["text"] = f"{time.time():.3f} "
    EVENT(self, json.dumps(chunk).encode())


_WATCH = """() => {
  window.late = [];
  const seen = new Set();
  new MutationObserver(() => {
    for (const [stamp] of (document.querySelector(".draft")?.textContent ?? "").matchAll(/\\d{10}\\.\\d{3}/g)) {
      if (!seen.has(stamp)) (seen.add(stamp), window.late.push(Date.now() - 1000 * Number(stamp)));
    }
  }).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


def tokens(lab: Lab, browser: Any) -> str:
    """From the moment when a model sent a token until the page shows it, with five runs and five windows."""
    rules = [
        {"match": {"schema": "next_speaker"}, "reply": '{"reasoning": "answered", "next_speaker": "user"}'},
        {"match": {"schema": "model_choice"}, "reply": '{"reasoning": "small", "model_choice": "flash"}'},
    ]
    ticks = {"text": "0000000000.000 " * TOKENS, "chunks": TOKENS, "chunk_delay": 0.1}
    Handler._event = stamped
    model = FakeGemini({"rules": rules, "replies": [ticks] * RUNS})
    threading.Thread(target=model.serve, daemon=True).start()
    lab.kill()
    lab.env |= model.env
    lab.serve(fresh=True)
    people = [Person(browser, lab) for _ in range(RUNS)]
    for number, one in enumerate(people):
        given = {"prompt": f"tick {number}", "model": "gemini-2.5-flash", "approval_mode": "yolo"}
        made = lab.post("/api/runs", workflow="main", input=given, workspace=str(lab.work(f"tick{number}")))
        one.do_go(f"/run/{made['run']}")
        one.page.evaluate(_WATCH)
    for one in people:
        one.do_see(".badge.done")
    late = sorted(ms for one in people for ms in one.page.evaluate("window.late"))
    for one in people:
        one.context.close()
    Handler._event = EVENT
    p95 = late[len(late) * 95 // 100]
    return f"a token on the page: median {median(late):.0f} ms, p95 {p95:.0f} ms ({len(late)} tokens)"


def decide(lab: Lab, browser: Any) -> str:
    """From the moment when `interlock resume --reject` has saved a decision until the request leaves the page."""
    somebody, late = Person(browser, lab), list[float]()
    for number in range(10):
        run = lab.park(f"decide{number}", "fix it", script="edit")
        somebody.do_go("/")
        somebody.do_see(f"[data-run='{run}']")
        somebody.page.evaluate(_GONE, run)
        lab.interlock("resume", run, "--reject", "all")
        until(lambda: somebody.page.evaluate("window.gone"), "the end of the request")
        gone: float = somebody.page.evaluate("window.gone")
        late.append(gone - 1000 * _answered(lab, run))
    somebody.context.close()
    return f"a decision from a terminal on the page: median {median(late):.0f} ms, worst {max(late):.0f} ms"


_GONE = """run => new MutationObserver(() => {
  if (!document.querySelector(`[data-run='${run}']`)) window.gone ??= Date.now();
}).observe(document.body, {subtree: true, childList: true})"""


def _answered(lab: Lab, run: str) -> float:
    import sqlite3

    with sqlite3.connect(lab.state / "interlock.db") as conn:
        return conn.execute("select max(answered_at) from approvals where run = $1", (run,)).fetchone()[0]


def long(lab: Lab, browser: Any) -> str:
    """A run of a thousand turns: until its end stands on the page, and how smoothly it scrolls back to its start."""
    turns = [
        {
            "text": f"Turn {n}: the next.",
            "tool_calls": [{"name": "run_shell_command", "args": {"command": f"echo {n}"}}],
        }
        for n in range(TURNS)
    ]
    flags = ("-y", "--no-loop-check", "--max-turns", "9999", "--max-session-turns", "9999")
    run = lab.park("long", "go", *flags, replies=[*turns, {"text": "The end."}])
    somebody = Person(browser, lab)
    started = time.perf_counter()
    somebody.page.goto(f"{lab.address}/run/{run}", wait_until="commit")
    somebody.do_see(".said.assistant:has-text('The end.')")
    opened = time.perf_counter() - started
    frames: list[float] = somebody.page.evaluate(_SCROLL)
    heap = somebody.page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    somebody.context.close()
    return (
        f"{TURNS} turns: open in {opened:.2f} s; scrolling: median frame {median(frames):.1f} ms, "
        f"p95 {sorted(frames)[len(frames) * 95 // 100]:.1f} ms; heap {heap:.1f} MB"
    )


_SCROLL = """async () => {
  const frames = [];
  let last = performance.now();
  for (let n = 0; n < 300; n += 1) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
    window.scrollBy(0, -200);
  }
  return frames;
}"""


def idle(lab: Lab, browser: Any) -> str:
    """The server after every page was opened: memory, and CPU while nobody looks."""
    somebody = Person(browser, lab)
    run = next(iter(lab.runs()), None) or lab.park("idle", "fix it", script="edit")
    for path in ("/", f"/run/{run}", "/all", "/start", "/flows/main"):
        somebody.do_go(path)
        somebody.page.wait_for_timeout(1000)
    with_page = _cpu(lab)
    time.sleep(10)
    with_page = _cpu(lab) - with_page
    somebody.context.close()
    alone = _cpu(lab)
    time.sleep(10)
    alone = _cpu(lab) - alone
    assert lab.server
    status = Path(f"/proc/{lab.server.pid}/status").read_text()
    held = int(status.partition("VmRSS:")[2].split()[0]) / 1000
    return f"idle: {held:.0f} MB, {alone * 10:.1f} % of a core alone, {with_page * 10:.1f} % with a page open"


def _cpu(lab: Lab) -> float:
    assert lab.server
    fields = Path(f"/proc/{lab.server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first(lab: Lab, browser: Any) -> str:
    """The first page in a fresh browser: what it sends, when it paints, what it holds."""
    painted: list[float] = []
    facts: Mapping[str, float] = {}
    for _ in range(5):
        somebody = Person(browser, lab)
        somebody.do_go("/")
        somebody.do_see(".request, .empty:visible")
        facts = somebody.page.evaluate(_FIRST)
        painted.append(facts["paint"])
        somebody.context.close()
    return (
        f"first page: {facts['kb']:.0f} KB, {facts['requests']} requests, first paint {median(painted):.0f} ms, "
        f"heap {facts['heap']:.1f} MB"
    )


_FIRST = """() => {
  const all = ["navigation", "resource"].flatMap(kind => performance.getEntriesByType(kind));
  const paint = performance.getEntriesByName("first-contentful-paint")[0].startTime;
  return {paint, kb: all.reduce((sum, one) => sum + one.transferSize, 0) / 1000, requests: all.length,
    heap: performance.memory.usedJSHeapSize / 1e6};
}"""


def kills(lab: Lab, browser: Any) -> str:
    """The server killed at random moments under five live runs, each watched by a page."""
    dice, turns = random.Random(7), 90  # a prompt has 100 turns
    replies = [
        {
            "text": f"Answer {n}.",
            "delay_s": 2.4,
            "tool_calls": [{"name": "run_shell_command", "args": {"command": f"echo {n} >>log"}}],
        }
        for n in range(turns)
    ]
    model = lab.script("steady", [*replies, {"text": "The end."}])
    people, made = [Person(browser, lab) for _ in range(RUNS)], list[str]()
    for number, one in enumerate(people):
        given = {"prompt": "go", "model": model, "approval_mode": "yolo"}
        answer = lab.post("/api/runs", workflow="main", input=given, workspace=str(lab.work(f"kill{number}")))
        made.append(answer["run"])
        one.do_go(f"/run/{answer['run']}")
    port = lab.port
    for _ in range(KILLS):
        time.sleep(dice.uniform(0.0, 1.2))
        lab.kill()
        lab.serve(port)
    until(lambda: all(lab.runs()[run]["status"] != "running" for run in made), "the end of all runs")
    wrong = 0
    for number, (run, one) in enumerate(zip(made, people, strict=True)):
        one.do_see(".said.assistant:has-text('The end.')")
        one.do_see(".badge.done")
        one.page.evaluate("window.scrollTo(0, 0)")
        while one.page.locator(".earlier:visible").count():
            one.page.evaluate("window.scrollTo(0, 0)")
            one.page.wait_for_timeout(50)
        said = one.page.eval_on_selector_all(
            ".talk .said.assistant", "all => all.map(one => one.textContent)"
        )
        log = (lab.home / f"kill{number}" / "log").read_text().split()
        good = said == [*(f"Answer {n}." for n in range(turns)), "The end."] and log == [
            *map(str, range(turns))
        ]
        wrong += not good or lab.runs()[run]["status"] != "done"
        one.context.close()
    return f"{KILLS} kills under {RUNS} runs: {wrong} runs or pages with something missing or doubled"


PARTS: Mapping[str, Callable[[Lab, Any], str]] = {
    "first": first,
    "decide": decide,
    "tokens": tokens,
    "long": long,
    "idle": idle,
    "kills": kills,
}


@contextmanager
def served() -> "Iterator[tuple[Lab, Any]]":
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        browser = stack.enter_context(browsing())
        lab = Lab(Path(folder))
        stack.callback(lab.kill)
        lab.serve(fresh=True)
        yield lab, browser


def main() -> int:
    for name in sys.argv[1:] or PARTS:
        with served() as (lab, browser):
            print(f"{PARTS[name](lab, browser)} (load {os.getloadavg()[0]:.1f})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
