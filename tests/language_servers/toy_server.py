"""toy_server: a language server on stdio that finds `BAD` in texts. Arguments: how it behaves, a file for its log."""

import json
import os
import sys
from pathlib import Path
from typing import Any

WAY, LOG = sys.argv[1], Path(sys.argv[2])
ASKED: list[tuple[str, Any]] = [
    ("workspace/configuration", {"items": [{"section": "toy.level"}, {"section": "other"}]}),
    ("workspace/workspaceFolders", None),
    ("workspace/applyEdit", {"edit": {}}),
    ("window/workDoneProgress/create", {"token": "t"}),
    ("window/showMessageRequest", {"type": 1, "message": "?"}),
    ("client/registerCapability", {"registrations": []}),
    ("toy/unknown", {}),
]
texts: dict[str, str] = {}
changes = 0


def log(text: str) -> None:
    with LOG.open("a") as file:
        file.write(f"{text}\n")


def send(**message: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    sys.stdout.buffer.flush()


def receive() -> dict[str, Any]:
    size = 0
    while line := sys.stdin.buffer.readline().strip():
        if line.lower().startswith(b"content-length:"):
            size = int(line.split(b":")[1])
    if not size:
        sys.exit(0)
    return json.loads(sys.stdin.buffer.read(size))


def find(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n")):
        for word, severity in (("BAD", 1), ("WARN", 2)):
            if word in line:
                start = len(line[: line.index(word)].encode("utf-16-le")) // 2
                at = {
                    "start": {"line": number, "character": start},
                    "end": {"line": number, "character": start},
                }
                message = f"{word} is in line {number + 1}"
                found.append(
                    {"range": at, "severity": severity, "message": message, "code": 7, "source": "toy"}
                )
    return found


def publish(uri: str, version: int) -> None:
    found: list[Any] = find(texts[uri])
    if WAY == "incomplete" and changes == 1:
        found = []
    if WAY == "odd":
        for params in ([1], {"uri": uri, "diagnostics": "x"}, {"uri": 5}, {"uri": uri, "version": 0}):
            send(method="textDocument/publishDiagnostics", params=params)
        send(method="exit", params={})
        send(method="exit", id=[1], params={})
        send(id="nobody's", result=1)
        sys.stdout.buffer.write(b"Content-Length: 3\r\n\r\n{x}")
        found += [{"range": None, "message": "x"}, {"message": 1}, 5, {**found[0], "severity": "y"}]
        far = {"start": {"line": 10**9, "character": 10**9}}
        found += [{**found[0], "range": far}]
    published: dict[str, Any] = {"uri": uri, "diagnostics": found}
    if WAY != "unversioned":
        published["version"] = version
    if WAY == "pieces":
        half = len(found) // 2
        send(method="textDocument/publishDiagnostics", params={**published, "diagnostics": found[:half]})
    send(method="textDocument/publishDiagnostics", params=published)


def take_text(uri: str, text: str, version: int) -> None:
    global changes
    changes += 1
    texts[uri] = text
    match WAY:
        case "pull" | "mute" | "silent":
            return
        case "crash":
            sys.stderr.write("toy: no licence\n")
            sys.exit(3)
        case "flood":
            while True:
                send(method="window/logMessage", params={"type": 3, "message": "x" * 50_000})
        case "garbage":
            sys.stdout.write("y" * 200_000)
            sys.stdout.flush()
        case "asks" if changes == 1:
            for number, (method, params) in enumerate(ASKED):
                send(id=number, method=method, params=params)
                answer = receive()
                log(json.dumps([method, answer.get("result"), bool(answer.get("error"))]))
        case "registers" if changes == 1:
            registered: dict[str, Any] = {
                "id": "r",
                "method": "textDocument/diagnostic",
                "registerOptions": {},
            }
            send(id=1, method="client/registerCapability", params={"registrations": [registered]})
            return
        case "registers":
            return
        case _:
            pass
    publish(uri, version)


def main() -> None:
    log(f"pid {os.getpid()} {Path.cwd().name}")
    while True:
        message = receive()
        method: str = message.get("method", "")
        params: dict[str, Any] = message.get("params") or {}
        document: dict[str, Any] = params.get("textDocument", {})
        log(method)
        if method == "initialize" and WAY != "hang":
            able: dict[str, Any] = {"diagnosticProvider": {}} if WAY == "pull" else {}
            send(id=message["id"], result={"capabilities": {"textDocumentSync": 2, **able}})
        elif method == "textDocument/didOpen":
            take_text(document["uri"], document["text"], document["version"])
        elif method == "textDocument/didChange":
            take_text(document["uri"], params["contentChanges"][0]["text"], document["version"])
        elif method == "textDocument/diagnostic":
            send(id=message["id"], result={"kind": "full", "items": find(texts[document["uri"]])})
        elif "id" in message and method not in ("", "initialize") and WAY != "mute":
            send(id=message["id"], error={"code": -32601, "message": "?"})


main()
