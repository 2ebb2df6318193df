"""A collector gets a run as one trace, with figures and logs, whatever process drove it; a bad one changes nothing."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.server import ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import warm
from folders import put
from patience import HANG_S
from scripted import says, tools
from serving import Quiet, serving

grpc = pytest.importorskip("grpc", reason="telemetry needs the extra [otel]")
pytest.importorskip("opentelemetry.proto.collector", reason="telemetry needs the extra [otel]")
KINDS = {"traces": "trace", "metrics": "metrics", "logs": "logs"}


def proto(kind: str, end: str = "") -> Any:
    return import_module(f"opentelemetry.proto.collector.{kind}.v1.{kind}_service_pb2{end}")


Cli = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = "echo $TRACEPARENT > told"
REPLIES = [
    tools({"name": "run_shell_command", "args": {"command": COMMAND}}, usage={"input": 9, "cached": 4}),
    {"text": "all done here"},
]
_REQUESTS = {
    name: getattr(proto(kind), f"Export{kind.title()}ServiceRequest") for name, kind in KINDS.items()
}


class Collector:
    """What was received. `url` is where it listens."""

    def __init__(self) -> None:
        self.url = ""
        self.got: dict[str, list[Any]] = {name: [] for name in _REQUESTS}

    @property
    def spans(self) -> dict[str, Any]:
        found = [
            s for r in self.got["traces"] for x in r.resource_spans for y in x.scope_spans for s in y.spans
        ]
        assert len({s.span_id for s in found}) == len(found), "no span is sent twice"
        return {s.span_id.hex(): s for s in found}

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans.values() if span.name == name]

    @property
    def figures(self) -> set[str]:
        parts = (y for r in self.got["metrics"] for x in r.resource_metrics for y in x.scope_metrics)
        return {m.name for y in parts for m in y.metrics}

    @property
    def records(self) -> list[Any]:
        parts = (y for r in self.got["logs"] for x in r.resource_logs for y in x.scope_logs)
        return [record for y in parts for record in y.log_records]


def attributes(item: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in item.attributes}


class Http(ThreadingHTTPServer):
    def __init__(self, collector: Collector, status: int = 200) -> None:
        class Handler(Quiet):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                name = self.path.removeprefix("/v1/")
                collector.got[name].append(_REQUESTS[name].FromString(body))
                self.answer(status)

        super().__init__(("127.0.0.1", 0), Handler)
        collector.url = f"http://127.0.0.1:{self.server_port}"


def _grpc_server(collector: Collector) -> Any:
    server = grpc.server(ThreadPoolExecutor(2))
    for name, kind in KINDS.items():

        def export(request: Any, _: Any, name: str = name, kind: str = kind) -> Any:
            collector.got[name].append(request)
            return getattr(proto(kind), f"Export{kind.title()}ServiceResponse")()

        servicer = type("Servicer", (), {"Export": staticmethod(export)})()
        getattr(proto(kind, "_grpc"), f"add_{kind.title()}ServiceServicer_to_server")(servicer, server)
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    return server


@pytest.fixture
def http() -> Generator[Collector]:
    collector = Collector()
    with serving(Http(collector)):
        yield collector


@pytest.fixture(params=["http", "grpc"])
def collector(request: pytest.FixtureRequest, set_up: Any) -> Generator[Collector]:
    if request.param == "http":
        found: Collector = request.getfixturevalue("http")
        set_up(otlpEndpoint=found.url, otlpProtocol="http")
        yield found
        return
    found = Collector()
    server = _grpc_server(found)
    set_up(otlpEndpoint=found.url)
    yield found
    server.stop(None).wait()


@pytest.fixture
def set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PATIENT", "1")
    put(tmp_path / "s.json", REPLIES)

    def write(**telemetry: Any) -> None:
        file = Path.home() / ".interlock" / "settings.json"
        file.parent.mkdir(exist_ok=True)
        models = {"script": {"price": {"input": 1, "output": 2}}}
        settings = {"models": models, "telemetry": {"enabled": True, **telemetry}}
        put(file, settings)

    return write


def test_a_parked_run_and_its_resume_in_another_process_are_one_trace(
    cli: Cli, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    monkeypatch.setenv("TRACEPARENT", f"00-{above[0]}-{above[1]}-01")
    assert cli("-p", "my words", "-m", "script:s.json").returncode == 75
    monkeypatch.delenv("TRACEPARENT")
    assert cli("resume", "latest", "--approve", "all").stdout == "all done here\n"
    spans = collector.spans
    assert {span.trace_id.hex() for span in spans.values()} == {above[0]}
    (root,) = (span for span in spans.values() if span.parent_span_id.hex() not in spans)
    assert (root.parent_span_id.hex(), root.name) == (above[1], "invoke_workflow main")
    (later,) = (s for s in collector.named("invoke_workflow main") if s is not root)
    assert later.parent_span_id == root.span_id
    assert (tmp_path / "told").read_text() == f"00-{above[0]}-{later.span_id.hex()}-01\n"

    first, second = collector.named("chat " + str(tmp_path / "s.json"))
    assert (
        spans[first.parent_span_id.hex()].name
        == spans[second.parent_span_id.hex()].name
        == "turn › call_model"
    )
    used = attributes(first)
    assert (used["gen_ai.operation.name"], used["gen_ai.provider.name"]) == ("chat", "script")
    assert (used["gen_ai.usage.input_tokens"], used["gen_ai.usage.cache_read.input_tokens"]) == (9, 4)
    assert used["interlock.cost.usd"] == pytest.approx(9e-6)
    (tool,) = collector.named("execute_tool run_shell_command")
    assert spans[tool.parent_span_id.hex()].name == "execute › run_tool"
    (wait,) = collector.named("approval run_shell_command")
    assert attributes(wait)["interlock.decision"] == "proceed_once"
    assert wait.end_time_unix_nano > wait.start_time_unix_nano
    assert collector.figures >= {
        *("gen_ai.client.token.usage", "gen_ai.client.operation.duration", "interlock.cost"),
        *("interlock.tool.duration", "interlock.approval.wait", "interlock.queue.duration"),
        *("interlock.run.duration", "interlock.decisions.waiting"),
    }
    results = [r for r in collector.records if r.event_name == "interlock.result"]
    assert [r.span_id for r in results] == [root.span_id, later.span_id]
    everything = str(collector.got)
    assert not any(words in everything for words in ("my words", "all done here", "echo")), (
        "prompts aren't sent"
    )


def test_prompts_and_answers_are_sent_only_if_settings_say_so(cli: Cli, http: Collector, set_up: Any) -> None:
    set_up(otlpEndpoint=http.url, otlpProtocol="http", logPrompts=True)
    cli("-p", "my words", "-m", "script:s.json", "-y")
    first, second = (span for span in http.spans.values() if span.name.startswith("chat "))
    assert json.loads(attributes(first)["gen_ai.input.messages"])[-1]["parts"][0]["content"] == "my words"
    (said,) = json.loads(attributes(second)["gen_ai.output.messages"])
    assert said == {
        "role": "assistant",
        "parts": [{"type": "text", "content": "all done here"}],
        "finish_reason": "stop",
    }
    (tool,) = http.named("execute_tool run_shell_command")
    assert json.loads(attributes(tool)["gen_ai.tool.call.arguments"]) == {"command": COMMAND}


class Bad:
    """No good collector: it says `answer` to whoever connects and hangs up; without an answer it says nothing."""

    def __init__(self, answer: bytes) -> None:
        self._listening, self._answer, self._open = socket.create_server(("127.0.0.1", 0)), answer, []
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listening.accept()
                if self._answer:
                    one.recv(65_536)
                    one.sendall(self._answer)
                    one.close()
                self._open.append(one)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for one in (self._listening, *self._open):
            one.close()


@pytest.mark.sample(2)
@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 503 no\r\nRetry-After: 99\r\nContent-Length: 0\r\n\r\n", b"hello\n"],
    ids=["hangs", "is overloaded", "is no collector"],
)
def test_a_bad_collector_neither_fails_a_run_nor_delays_its_answer(
    set_up: Any, protocol: str, answer: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with closing(Bad(answer)) as bad, out.open("wb") as file:
        set_up(otlpEndpoint=bad.url, otlpProtocol=protocol)
        words = ("-p", "go", "-m", "script:s.json", "-y")
        ours, env = file.fileno(), {**os.environ}
        del env["PATIENT"]
        assert warm.Warm(words, cwd=tmp_path, env=env, stdout=ours, stderr=ours).wait(HANG_S) == 0
    *_, shown, told = out.read_text().splitlines()
    assert shown == "all done here", "it stands there before anything waits for a collector"
    assert told.startswith(f"interlock: Telemetry to '{bad.url}': it didn't ")
    assert told.endswith("; it is sent with the run's next drive.")


def test_a_collector_that_is_not_there_changes_nothing(cli: Cli, set_up: Any) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as gone:
        set_up(otlpEndpoint=f"http://127.0.0.1:{gone.getsockname()[1]}")
    done = cli("-p", "go", "-m", "script:s.json", "-y")
    assert (done.returncode, done.stdout, done.stderr.count("Telemetry")) == (0, "all done here\n", 1)


def test_what_a_collector_refused_goes_with_the_next_drive(cli: Cli, set_up: Any, http: Collector) -> None:
    refusing = Collector()
    with serving(Http(refusing, 400)):
        set_up(otlpEndpoint=refusing.url, otlpProtocol="http")
        done = cli("-p", "go", "-m", "script:s.json")
    assert done.returncode == 75 and "it didn't take the spans" in done.stderr
    set_up(otlpEndpoint=http.url, otlpProtocol="http")
    assert cli("resume", "latest", "--approve", "all").returncode == 0
    assert len([span for span in http.spans.values() if span.name.startswith("chat ")]) == 2


def test_a_detected_loop_is_an_event_and_a_figure(cli: Cli, set_up: Any, tmp_path: Path) -> None:
    set_up(outfile=str(tmp_path / "out.jsonl"))
    call = says("list_directory", dir_path=".")
    put(tmp_path / "s.json", [call] * 12)
    assert cli("-p", "go", "-m", "script:s.json").returncode == 58
    out = tmp_path / "out.jsonl"
    assert (
        '"event_name": "interlock.loop_detected"' in out.read_text() and "interlock.loops" in out.read_text()
    )
    assert out.stat().st_mode & 0o777 == 0o600


def test_what_telemetry_cannot_do_is_one_line_and_no_failure(cli: Cli, set_up: Any) -> None:
    set_up(target="gcp")
    done = cli("-p", "go", "-m", "script:s.json", "-y")
    assert done.returncode == 0 and "set telemetry.useCollector" in done.stderr
