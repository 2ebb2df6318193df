"""lab: a home with runs, a real server, and Chromium; what a person at the page does."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import warm
from patience import HANG_S
from scripted import call, says, tools

from interlock.engine.client import Client, Options

CALC = "def add(a, b):\n    return a - b\n"
EDIT = {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"}
HOSTILE = (
    "<script>window.hurt = 1</script><svg onload='window.hurt = 2'>"
    "\x1b[31mred\x1b[0m \u202egnp.exe\u202c zero\u200bwidth\x07 p\u0430ypal\u3164"
)
HOSTILE_NAME = "\u202egnp.<img src=x onerror='window.hurt=3'>.py"
WHICH = {
    "question": "Which database?",
    "header": "db",
    "type": "choice",
    "options": [
        {"label": "SQLite", "description": "a file"},
        {"label": "PostgreSQL", "description": "a server"},
    ],
}
SCRIPTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "edit": [
        tools(call("read_file", file_path="calc.py"), text="I read it first."),
        tools(call("replace", **EDIT), text="`add` subtracts."),
        {"text": "**Fixed** it."},
        {"text": "Said again."},
    ],
    "hostile": [
        tools(
            call("write_file", file_path=HOSTILE_NAME, content=f"{HOSTILE}\n"),
            call("write_file", file_path="notes.md", content=f"# {HOSTILE}\n"),
            text=HOSTILE,
        ),
        {"text": HOSTILE},
    ],
    "question": [says("ask_user", questions=[WHICH]), {"text": "As you say."}],
}
_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


class Lab:
    """One home, one folder to work in, and one server."""

    def __init__(self, folder: Path) -> None:
        self.home, self.state = folder, folder / "interlock"
        self.env = {**os.environ, "HOME": str(folder), "INTERLOCK_HOME": str(self.state)}
        self.env |= {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CONFIG")}
        self.server: warm.Warm | subprocess.Popen[str] | None = None
        self.address = self.token = ""

    def script(self, name: str, replies: Sequence[Mapping[str, Any]] | None = None) -> str:
        file = self.home / f"{name}.json"
        file.write_text(json.dumps(SCRIPTS[name] if replies is None else replies))
        return f"script:{file}"

    def work(self, name: str) -> Path:
        """A folder for one run, so that no run's change is another's surprise."""
        folder = self.home / name
        if not folder.exists():
            folder.mkdir()
            (folder / "calc.py").write_text(CALC)
        return folder

    def interlock(self, *arguments: str, work: str = "work") -> "subprocess.CompletedProcess[str]":
        return warm.run(arguments, cwd=self.work(work), env=self.env)

    def park(
        self,
        name: str,
        prompt: str,
        *flags: str,
        script: str = "",
        replies: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """A run of a script in a folder of its own, until it parks or ends; its id."""
        before = set(self.runs())
        model = self.script(script or name, replies)
        self.interlock("-p", prompt, "-m", model, "--skip-trust", *flags, work=name)
        (made,) = set(self.runs()) - before
        return made

    def runs(self) -> dict[str, str]:
        """Run → its status."""
        return {row.run: row.status for row in Client(Options(home=self.state)).runs()}

    def serve(self, port: int = 0, *flags: str, fresh: bool = False) -> None:
        """Start the server; `fresh`: as users do, without what a forked process has imported."""
        arguments = ["serve", "--port", str(port), "--skip-trust", *flags]
        given: dict[str, Any] = {"cwd": self.work("work"), "env": self.env, "stdout": subprocess.PIPE}
        if fresh:
            command = [str(Path(sys.executable).with_name("interlock")), *arguments]
            self.server = subprocess.Popen(command, text=True, **given)
        else:
            self.server = warm.Warm(arguments, **given)
        assert self.server.stdout
        self.address, _, self.token = self.server.stdout.readline().split()[-1].partition("/#token=")

    def post(self, path: str, **body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.post(f"{self.address}{path}", json=body, headers=headers, timeout=HANG_S).json()

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        if self.server:
            self.server.kill()
            self.server.wait(HANG_S)
            assert self.server.stdout
            self.server.stdout.close()
            self.server = None


def chromium() -> str:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("chromium isn't installed: the page isn't tried in a browser")
    pytest.importorskip("playwright", reason="the extra `browser` isn't installed")
    return found


@contextmanager
def browsing() -> "Iterator[Any]":
    """A browser that reaches nothing but this machine."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as temp, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=[*_FLAGS], env={**os.environ, "HOME": temp}
        )
        yield browser
        browser.close()


class Person:
    """Somebody at a page: what the browser complains of is kept, and so is each address that it asked."""

    def __init__(self, browser: Any, lab: Lab, **context: Any) -> None:
        self.lab, self.complaints, self.asked = lab, list[str](), list[str]()
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **context)
        self.context.set_default_timeout(float(os.environ.get("PATIENCE_MS", HANG_S * 1000)))
        self.page = self.tab()
        self.page.goto(f"{lab.address}/#token={lab.token}")
        self.page.wait_for_selector("nav a[aria-current]")

    def tab(self) -> Any:
        page = self.context.new_page()
        page.on("console", lambda one: one.type in ("error", "warning") and self.complaints.append(one.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        return page

    def do(self, word: str, about: str) -> None:
        """Nothing is clicked."""
        getattr(self, f"do_{word}")(about)

    def fetched(self, path: str) -> Any:
        return self.page.evaluate(_FETCHED, path)

    def do_go(self, path: str) -> None:
        self.page.goto(f"{self.lab.address}{path}")
        self.page.wait_for_selector("main:not(:has-text('Loading …')) h1")  # keys do nothing before

    def do_press(self, keys: str) -> None:
        for key in keys.split():
            self.page.keyboard.press(key)

    def do_type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def do_tab(self, name: str) -> None:
        """Press Tab until what has the focus is called so; a name in small letters is also found in capitals."""
        for _ in range(120):
            self.page.keyboard.press("Tab")
            focused = self.page.evaluate(_FOCUSED)
            if name in (focused.lower() if name.islower() else focused):
                return
        raise AssertionError(f"Tab never reaches {name!r}")

    def do_see(self, selector: str) -> None:
        from playwright.sync_api import TimeoutError as TooLate

        try:
            self.page.wait_for_selector(selector)
        except TooLate as error:
            waiting = [one["id"] for one in self.fetched("/api/requests")]
            shown = f"{self.page.url}, {waiting} wait:\n{self.page.inner_text('body')}"
            raise AssertionError(f"{selector!r} isn't on {shown}") from error

    def do_gone(self, selector: str) -> None:
        self.page.wait_for_selector(selector, state="detached")

    def do_at(self, pattern: str) -> None:
        self.page.wait_for_url(re.compile(pattern))

    def stays_well(self) -> None:
        """Nothing was complained of, nothing outside was asked, and no hostile text came alive."""
        assert not self.complaints
        assert not [url for url in self.asked if not url.startswith((self.lab.address, "data:"))]
        assert self.page.evaluate("window.hurt") is None
        self.context.close()


_FETCHED = """path => import("/static/sign-in.js").then(({request}) => request(path)).then(answer => answer.json())"""
_FOCUSED = """() => {
  if (document.activeElement.matches("body, [role=tabpanel]")) return "";
  const one = document.activeElement, label = one.labels?.[0]?.textContent;
  return one.getAttribute("aria-label") ?? label ?? one.placeholder ?? one.textContent;
}"""
