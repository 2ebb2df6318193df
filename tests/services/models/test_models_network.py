"""Keys go to their own address only; proxies and certificates of the environment count for every provider's client."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import certifi
import pytest
from folders import put
from serving import Quiet, over_tls, serving

from interlock.services.config.formats import DotEnv, load_dotenv
from interlock.services.models.names import PROVIDERS
from interlock.services.models.network import (
    check_proxies,
    describe_network_settings,
    find_or_merge_certificate_file,
    temporary_client_environment,
)
from interlock.services.models.provider_api import list_provider_models
from interlock.state.errors import ModelError, UserError

pytestmark = pytest.mark.anyio
CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
CLIENTS = {
    "openai:gpt-5": ("langchain_openai", "OPENAI_BASE_URL"),
    "anthropic:claude-sonnet-4-5": ("langchain_anthropic", "ANTHROPIC_BASE_URL"),
    "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0": (
        "langchain_aws",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    ),
    "gemini-2.5-pro": ("langchain_google_genai", "GOOGLE_GEMINI_BASE_URL"),
    "groq:llama-3.3-70b-versatile": ("langchain_groq", "GROQ_API_BASE"),
    "mistralai:mistral-large-latest": ("langchain_mistralai", "MISTRAL_BASE_URL"),
    "deepseek:deepseek-chat": ("langchain_deepseek", "DEEPSEEK_API_BASE"),
    "xai:grok-4": ("langchain_xai", "XAI_API_BASE"),
    "together:m": ("langchain_together", "TOGETHER_API_BASE"),
    "fireworks:m": ("langchain_fireworks", "FIREWORKS_API_BASE"),
    "ollama:m": ("langchain_ollama", "OLLAMA_HOST"),
}


class Refusing(Quiet):
    """Refuses every request, and remembers the keys that came."""

    keys: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.do_GET()

    def do_GET(self) -> None:
        self.keys.append(
            f"{self.headers.get('Authorization', '')}{self.headers.get('x-api-key', '')}"
            f"{self.headers.get('api-key', '')}"
        )
        self.answer(418, json.dumps({"error": {"message": "a teapot"}}).encode())


@pytest.fixture
def teapot(tmp_path: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """A TLS server with a certificate that nobody knows: its address, the certificate, and the keys it was sent."""
    keys: list[str] = []
    with HTTPServer(("127.0.0.1", 0), type("Handler", (Refusing,), {"keys": keys})) as server:
        file = over_tls(server, tmp_path)
        with serving(server):
            yield f"https://127.0.0.1:{server.server_port}", file, keys


@pytest.mark.sample(6)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("variable", CERTIFICATES)
@pytest.mark.parametrize("model", CLIENTS)
async def test_a_certificate_of_ones_own_is_trusted_by_every_client(
    model: str,
    variable: str,
    bench: Any,
    monkeypatch: pytest.MonkeyPatch,
    teapot: tuple[str, Path, list[str]],
) -> None:
    package, address = CLIENTS[model]
    pytest.importorskip(package)
    url, file, keys = teapot
    for name in (*CERTIFICATES, "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(file))
    env = {address: url, **{f"{n.upper()}_API_KEY": "k" for n in ("openai", "anthropic", "gemini", "groq")}}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "k")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", url)
    with pytest.raises(ModelError, match=r"teapot|418"):
        await bench(env, {"model": {"name": model}}).ask("hi", attempts=1)
    assert keys and os.environ[variable] == str(file)


@pytest.mark.parametrize("provider", [name for name, s in PROVIDERS.items() if s.url and not s.own_login])
def test_a_key_is_tested_at_the_address_it_is_for(
    provider: str, monkeypatch: pytest.MonkeyPatch, teapot: tuple[str, Path, list[str]]
) -> None:
    url, file, keys = teapot
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    spec = PROVIDERS[provider]
    with pytest.raises(UserError, match="teapot"):
        list_provider_models(provider, {spec.url: url, **({spec.key: "sk-own"} if spec.key else {})})
    assert ["sk-own" in key for key in keys] == [bool(spec.key)]


GATEWAY = {"ANTHROPIC_BASE_URL": "https://gateway.example"}
KEY, PAIR = "ANTHROPIC_API_KEY=vendor\n", "ANTHROPIC_API_KEY=g\nANTHROPIC_BASE_URL=https://gateway.example\n"


@pytest.mark.parametrize(
    ("stored", "env", "key", "address"),
    [
        (KEY, {}, "vendor", None),
        (PAIR, {}, "g", "https://gateway.example"),
        (PAIR, GATEWAY, "g", "https://gateway.example"),
        (KEY, GATEWAY, None, "https://gateway.example"),
        (PAIR, {"ANTHROPIC_BASE_URL": "https://other.example"}, None, "https://other.example"),
        (PAIR, {"ANTHROPIC_API_KEY": "vendor"}, "vendor", None),
        (KEY, {**GATEWAY, "ANTHROPIC_API_KEY": "g"}, "g", "https://gateway.example"),
    ],
)
def test_a_stored_key_goes_to_no_other_address(
    stored: str, env: dict[str, str], key: str | None, address: str | None, tmp_path: Path
) -> None:
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini/.env").write_text(stored)
    found: DotEnv = load_dotenv(start=tmp_path / "work", home=tmp_path, env=env, trusted=True)
    assert (found.values.get("ANTHROPIC_API_KEY"), found.values.get("ANTHROPIC_BASE_URL")) == (key, address)
    assert bool(found.warnings) is (key is None)
    assert all("auth set" in text and "vendor" not in text for text in found.warnings)


def test_a_proxy_that_no_client_can_use_is_named_without_its_password() -> None:
    with pytest.raises(UserError, match="kind 'socks4' aren't supported") as caught:
        check_proxies({"ALL_PROXY": "socks4://me:secret@127.0.0.1:9"})
    assert "secret" not in str(caught.value)
    for good in ("socks5://127.0.0.1:9", "socks5h://h:1", "socks://127.0.0.1:9/", "http://h:3128", "h:3128"):
        check_proxies({"ALL_PROXY": good})
    told = describe_network_settings(
        {"ALL_PROXY": "socks5://me:secret@h:1", "NO_PROXY": "localhost", "SSL_CERT_FILE": __file__}
    )
    assert told == [
        "proxy: ALL_PROXY=socks5://h:1; not for localhost",
        f"certificates: SSL_CERT_FILE={__file__}",
    ]


def test_a_file_of_certificates_that_is_missing_is_named() -> None:
    for name in CERTIFICATES:
        with pytest.raises(UserError, match=f"{name} names '/no/such'"):
            find_or_merge_certificate_file({name: "/no/such"})


def test_clients_see_forms_that_they_know_and_the_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:9")
    with temporary_client_environment():
        assert os.environ["ALL_PROXY"] == "socks5://127.0.0.1:9"
        httpx.Client().close()
    assert os.environ["ALL_PROXY"] == "socks://127.0.0.1:9"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has files in memory")
def test_a_process_that_is_killed_leaves_no_file_of_certificates(tmp_path: Path) -> None:
    more = put(tmp_path / "more.pem", Path(certifi.where()).read_text())
    code = (
        "import os; from interlock.services.models.network import find_or_merge_certificate_file; "
        "size = len(open(find_or_merge_certificate_file(os.environ), 'rb').read()); print(size, flush=True); "
        "os.kill(os.getpid(), 9)"
    )
    (temporary := tmp_path / "temporary").mkdir()
    env = {"NODE_EXTRA_CA_CERTS": str(more), "TMPDIR": str(temporary), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True)
    assert int(done.stdout) == 2 * more.stat().st_size + 1
    assert not [*temporary.iterdir()]
