"""What each provider's server gets: the address, the key, the model and the thought level, as seen on the wire."""

import json
from collections.abc import Iterator, Mapping
from http.server import ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from caching_server import event_frame
from commands import execute, python
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from local_server import Local
from serving import Quiet, serving

from interlock.services.models.names import PUBLIC_URLS
from interlock.services.models.provider_api import list_provider_models
from interlock.state.errors import UserError

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


class Got(NamedTuple):
    path: str
    headers: Mapping[str, str]
    body: Json


class Server(ThreadingHTTPServer):
    """Says "Yes." in the protocol that it is asked in, and keeps what it got. `refusals` come first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[Got] = []
        self.refusals: list[str] = []
        self.listed: list[str] = []
        """Where lists of models were asked for."""
        self.lists_bare = False
        """The list of models stands in no object, as Together's."""
        self.lists_for_all = False
        """Models are listed without a key, as OpenRouter's."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(Quiet):
    server: Server

    def do_GET(self) -> None:
        self.server.listed.append(self.path)
        key = f"{self.headers.get('Authorization', '')}{self.headers.get('x-api-key', '')}"
        names = [{"id": "one"}, {"id": "two"}]
        found = names if self.server.lists_bare else {"data": names}
        is_known = "k" in key.split() or (self.server.lists_for_all and self.path == "/models")
        self.answer(200 if is_known else 401, json.dumps(found if is_known else {}).encode())

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.removeprefix(self.server.url)
        if path == "/token":
            token = {"access_token": "of-google", "expires_in": 3600, "token_type": "Bearer"}
            return self.answer(200, json.dumps(token).encode())
        if path == "/api/show":
            return self.answer(404)
        self.server.got.append(Got(path, self.headers, json.loads(raw)))
        if self.server.refusals:
            says = self.server.refusals.pop(0)
            refusal = {"message": says, "error": {"message": says, "type": "invalid_request_error"}}
            return self.answer(400, json.dumps(refusal).encode())
        self.answer(*_said(path))


def _said(path: str) -> tuple[int, bytes, str]:
    sse = "text/event-stream"
    if "/converse" in path:
        events = [
            event_frame("messageStart", {"role": "assistant"}),
            event_frame("contentBlockDelta", {"delta": {"text": "Yes."}, "contentBlockIndex": 0}),
            event_frame("contentBlockStop", {"contentBlockIndex": 0}),
            event_frame("messageStop", {"stopReason": "end_turn"}),
        ]
        return 200, b"".join(events), "application/vnd.amazon.eventstream"
    if path.endswith("/api/chat"):
        line = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": True, "done_reason": "stop"}
        message = {"role": "assistant", "content": "Yes."}
        return 200, json.dumps({**line, "message": message}).encode(), "application/x-ndjson"
    if "GenerateContent" in path:
        content = {"role": "model", "parts": [{"text": "Yes."}]}
        answer: Json = {"candidates": [{"content": content, "finishReason": "STOP"}]}
    else:
        choice = {"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}
        answer = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        answer["choices"] = [choice]
    return 200, f"data: {json.dumps(answer)}\n\n".encode(), sse


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as made:
        yield made


CHAT, BEARER = "/chat/completions", ("authorization", "Bearer k")
EFFORT: Json = {"reasoning_effort": "high"}


class Way(NamedTuple):
    """How a provider is asked for a model that thinks much: most of them as OpenAI is."""

    model: str
    package: str
    address: str
    """Variable of its address."""
    path: str = CHAT
    key: tuple[str, str] = BEARER
    """Header of the key, and what it holds."""
    says: Json = EFFORT
    """Part of the body."""
    below: str = ""
    """What the address ends in."""


AZURE = "/openai/deployments/of-mine/chat/completions?api-version=2024-10-21"
BEDROCK = "/model/us.anthropic.claude-opus-5-5-v1%3A0/converse-stream"
ADAPTS: Json = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
WAYS = [
    Way(
        *("openrouter:anthropic/claude-opus-5-5", "langchain_openai", "OPENROUTER_BASE_URL"),
        says={"model": "anthropic/claude-opus-5-5", **EFFORT},
    ),
    Way("azure:of-mine", "langchain_openai", "AZURE_OPENAI_ENDPOINT", AZURE, ("api-key", "k")),
    Way("groq:openai/gpt-oss-120b", "langchain_groq", "GROQ_API_BASE", f"/openai/v1{CHAT}"),
    Way("mistralai:mistral-small-latest", "langchain_mistralai", "MISTRAL_BASE_URL"),
    Way("deepseek:deepseek-v4-flash", "langchain_deepseek", "DEEPSEEK_API_BASE"),
    Way("xai:grok-4.3", "langchain_xai", "XAI_API_BASE"),
    Way("together:openai/gpt-oss-20b", "langchain_together", "TOGETHER_API_BASE"),
    Way(
        *("together:zai-org/GLM-5.1", "langchain_together", "TOGETHER_API_BASE"),
        *("/chat/completions", BEARER),
        {"reasoning": {"enabled": True}, "reasoning_effort": None},
    ),
    Way(
        *("fireworks:accounts/fireworks/models/glm-5", "langchain_fireworks", "FIREWORKS_API_BASE"),
        *(f"/inference/v1{CHAT}", BEARER, EFFORT, "/inference/v1"),
    ),
    Way("ollama:qwen3", "langchain_ollama", "OLLAMA_HOST", "/api/chat", ("", ""), {"think": True}),
    Way(
        *("bedrock:us.anthropic.claude-opus-5-5-v1:0", "langchain_aws", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"),
        *(BEDROCK, ("authorization", "AWS4-HMAC"), {"additionalModelRequestFields": ADAPTS}),
    ),
]


def env_for(way: Way, server: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    address = f"{server.url}{way.below}"
    names = ("OPENROUTER", "AZURE_OPENAI", "GROQ", "MISTRAL", "DEEPSEEK", "XAI", "TOGETHER", "FIREWORKS")
    aws = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "k", "AWS_DEFAULT_REGION": "us-east-1"}
    env = {**{f"{name}_API_KEY": "k" for name in names}, **aws, way.address: address}
    for name, value in aws.items():
        monkeypatch.setenv(name, value)
    return env


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.model)
async def test_a_request_goes_to_its_address_with_its_key_and_its_thought_level(
    bench: Any, server: Server, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(way.package)
    env = env_for(way, server, monkeypatch)
    asked = await bench(env, {"model": {"name": way.model, "thinking": "high"}}).ask("go")
    (got,) = server.got
    assert (asked.text, got.path) == ("Yes.", way.path)
    assert (got.headers.get(way.key[0]) or "").startswith(way.key[1])
    assert {name: got.body.get(name) for name in way.says} == way.says


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("model", "refusal"),
    [
        ("ollama:qwen3", '"qwen3" does not support thinking'),
        ("openrouter:meta-llama/llama-4", "Unrecognized request argument: reasoning_effort"),
        ("together:zai-org/GLM-5.1", "This model does not support reasoning"),
        (
            "bedrock:us.anthropic.claude-opus-5-5-v1:0",
            "The model returned the following errors: extraneous key [thinking] is not permitted",
        ),
    ],
)
async def test_a_thought_level_that_the_server_refuses_is_said_once_and_left_out(
    bench: Any, server: Server, model: str, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = next(way for way in WAYS if way.model.partition(":")[0] == model.partition(":")[0])
    pytest.importorskip(way.package)
    env = env_for(way, server, monkeypatch)
    server.refusals = [refusal]
    run = bench(env, {"model": {"name": model, "thinking": "high"}})
    asked = [await run.ask("go"), await run.ask("go")]
    assert ([one.text for one in asked], len(server.got)) == (["Yes.", "Yes."], 3)
    said = [e for one in asked for e in one.events if "takes no thought level" in getattr(e, "message", "")]
    assert len(said) == 1
    refused = {"think", "reasoning", "reasoning_effort", "additionalModelRequestFields"}
    assert not refused & server.got[-1].body.keys()


@pytest.mark.filterwarnings("ignore")
async def test_vertex_is_asked_with_googles_own_login(
    bench: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    account = {
        "type": "service_account",
        "project_id": "mine",
        "client_email": "a@mine.example",
        "token_uri": f"{server.url}/token",
        "private_key": key.private_bytes(serialization.Encoding.PEM, *plain).decode(),
    }
    (tmp_path / "login.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "login.json"))
    env = {"GOOGLE_CLOUD_PROJECT": "mine", "GOOGLE_CLOUD_LOCATION": "europe-west4"}
    env["GOOGLE_VERTEX_BASE_URL"] = server.url
    asked = await bench(env, {"model": {"name": "vertex:gemini-2.5-pro"}}).ask("go")
    (got,) = server.got
    where = "projects/mine/locations/europe-west4/publishers/google/models/gemini-2.5-pro"
    assert (asked.text, where in urlsplit(got.path).path) == ("Yes.", True)
    assert got.headers["authorization"] == "Bearer of-google"


LISTED = {
    "groq": ("GROQ_API_KEY", "GROQ_API_BASE", "/openai/v1/models"),
    "mistralai": ("MISTRAL_API_KEY", "MISTRAL_BASE_URL", "/models"),
    "deepseek": ("DEEPSEEK_API_KEY", "DEEPSEEK_API_BASE", "/models"),
    "xai": ("XAI_API_KEY", "XAI_API_BASE", "/models"),
    "together": ("TOGETHER_API_KEY", "TOGETHER_API_BASE", "/models"),
    "fireworks": ("FIREWORKS_API_KEY", "FIREWORKS_API_BASE", "/models"),
    "openrouter": ("OPENROUTER_API_KEY", "OPENROUTER_BASE_URL", "/models"),
}


@pytest.mark.parametrize("provider", LISTED)
def test_models_are_listed_with_one_key_of_a_provider(provider: str, server: Server, tmp_path: Path) -> None:
    key, address, path = LISTED[provider]
    done = execute(tmp_path, "models", "--json", env={key: "k", address: server.url})
    assert done.returncode == 0, done.stderr
    names = [row["model"] for row in json.loads(done.stdout)]
    assert {f"{provider}:one", f"{provider}:two"} <= {*names} and server.listed == [path]


def test_a_list_of_models_may_stand_in_no_object(server: Server) -> None:
    server.lists_bare = True
    assert list_provider_models("together", {"TOGETHER_API_KEY": "k", "TOGETHER_API_BASE": server.url}) == [
        "one",
        "two",
    ]


def test_a_key_is_tried_where_models_are_listed_without(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.lists_for_all = True
    monkeypatch.setitem(PUBLIC_URLS, "openrouter", server.url)
    assert list_provider_models("openrouter", {"OPENROUTER_API_KEY": "k"}) == ["one", "two"]
    with pytest.raises(UserError, match="The key was refused"):
        list_provider_models("openrouter", {"OPENROUTER_API_KEY": "wrong"})


def test_a_refused_key_is_named_where_models_are_listed(server: Server, tmp_path: Path) -> None:
    env = {"MISTRAL_API_KEY": "wrong", "MISTRAL_BASE_URL": server.url}
    done = execute(tmp_path, "models", "--json", env=env)
    assert "mistralai: The key was refused" in done.stderr


@pytest.mark.parametrize(
    ("provider", "variable"),
    [("bedrock", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"), ("vertex", "GOOGLE_VERTEX_BASE_URL")],
)
def test_an_address_is_kept_of_a_provider_with_its_own_login(
    provider: str, variable: str, home: Path, tmp_path: Path
) -> None:
    bad = execute(tmp_path, "auth", "set", provider, "--url", "gateway.example")
    assert bad.returncode != 0 and "https://gateway.example" in bad.stderr
    done = execute(tmp_path, "auth", "set", provider, "--url", "https://gateway.example")
    assert (done.returncode, "not tested" in done.stdout) == (0, True), done.stderr
    assert f"{variable}='https://gateway.example'" in (home / ".gemini" / ".env").read_text()
    listed = json.loads(execute(tmp_path, "auth", "list", "--json").stdout)
    assert {one["provider"]: one["url"] for one in listed}[provider] == "https://gateway.example"


def test_ollamas_models_are_listed_and_nothing_without_a_name(local: Local, tmp_path: Path) -> None:
    local.pages["/v1/models"] = {"data": [{"id": "qwen3:8b", "owned_by": "library"}]}
    local.pages["/api/show"] = {"parameters": "num_ctx 4096"}
    env = {"OLLAMA_HOST": local.env["OPENAI_BASE_URL"].removesuffix("/v1")}
    done = execute(tmp_path, "models", "--json", env=env)
    names = [row["model"] for row in json.loads(done.stdout)]
    assert [name for name in names if name.startswith("ollama:")] == ["ollama:qwen3:8b"], done.stderr


def test_an_address_is_kept_though_its_package_is_missing_which_is_named(
    server: Server, tmp_path: Path
) -> None:
    if find_spec("langchain_together"):
        pytest.skip("the package is installed")
    server.lists_for_all = True
    done = execute(tmp_path, "auth", "set", "together", "--url", server.url)
    assert done.returncode == 0 and "together works" in done.stdout, done.stderr
    assert "needs a package that isn't installed. Run: " in done.stderr


_PACKAGES = (
    "anthropic",
    "openai",
    "boto3",
    "botocore",
    "groq",
    "mistralai",
    "ollama",
    "fireworks",
    "together",
)
CLIENTS = (
    *_PACKAGES,
    *(f"langchain_{n}" for n in ("anthropic", "openai", "aws", "groq", "ollama", "google_genai")),
)
ASKS = """
import sys
from interlock.cli.main import main

code = main(sys.argv[1:])
print(*(name for name in CLIENTS if name in sys.modules))
sys.exit(code)
"""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("model", "loads"),
    [
        ("gemini-2.5-pro", {"langchain_google_genai"}),
        pytest.param(
            "openrouter:anthropic/claude-opus-5-5", {"openai", "langchain_openai"}, marks=pytest.mark.sweep
        ),
        pytest.param("ollama:qwen3", {"ollama", "langchain_ollama"}, marks=pytest.mark.sweep),
    ],
)
def test_only_the_package_of_the_model_that_is_asked_is_imported(
    model: str, loads: set[str], server: Server, tmp_path: Path
) -> None:
    for name in loads:
        pytest.importorskip(name)
    keys = {"GEMINI_API_KEY": "k", "OPENROUTER_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
    urls = dict.fromkeys(("GOOGLE_GEMINI_BASE_URL", "OPENROUTER_BASE_URL", "OLLAMA_HOST"), server.url)
    program = ASKS.replace("CLIENTS", repr(CLIENTS))
    told = python(program, tmp_path, "-m", model, "-p", "hi", env={**keys, **urls})
    answer, loaded = told.splitlines()
    assert (answer, {*loaded.split()}) == ("Yes.", loads)
