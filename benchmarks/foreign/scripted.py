"""scripted: what the examples of LangGraph's documentation need of the world, without a network or a key.

A chat model whose reply depends on nothing but its messages and tools, so that a killed run is told the same again:
it calls each tool once, with arguments made of the tool's schema, then answers. It takes the place of every model
class and of `init_chat_model`; search, pages and embeddings get fixed stand-ins.
"""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.vectorstores import InMemoryVectorStore


class Scripted(BaseChatModel):
    """A model that answers by rule."""

    model: str = "scripted"
    values: ClassVar[Mapping[str, Any]] = {}
    """Name of an argument → its value, or a function that makes it of the prompt; set by each example.

    `text`: pairs of a prompt's part and the reply.
    """

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(one) for one in tools], **kwargs)

    def _reply(self, messages: Sequence[Any], given: Mapping[str, Any]) -> AIMessage:
        text = "\n".join(f"{m.type}: {m.text}" for m in messages)
        mark = sha256(_VARIES.sub("", text).encode()).hexdigest()[:8]  # some prompts hold times and ids
        wanted = _next_tool(messages, given.get("tools") or (), given.get("tool_choice"))
        if reply := next((said for part, said in self.values.get("text", ()) if part in text), None):
            return AIMessage(reply, id=f"reply-{mark}")
        if not wanted:
            return AIMessage(f"{messages[-1].text[:160]} / {mark}", id=f"reply-{mark}")
        args = _value(wanted["parameters"], "", wanted["parameters"].get("$defs", {}), text)
        call = {"name": wanted["name"], "args": args, "id": f"call-{mark}"}
        return AIMessage("", tool_calls=[call], id=f"reply-{mark}")

    def _generate(self, messages: list[Any], *_: Any, **given: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages, given))])

    def _stream(
        self, messages: list[Any], *_: Any, run_manager: Any = None, **given: Any
    ) -> Iterator[ChatGenerationChunk]:
        reply = self._reply(messages, given)
        pieces = [f"{word} " for word in reply.text.split(" ")] if not reply.tool_calls else []
        for piece in (*pieces[:-1], *(last.rstrip() for last in pieces[-1:])):
            chunk = ChatGenerationChunk(message=AIMessageChunk(piece, id=reply.id))
            if run_manager:
                run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk
        if reply.tool_calls:
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_calls=reply.tool_calls, id=reply.id))


_VARIES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _next_tool(messages: Sequence[Any], tools: Sequence[Any], choice: Any) -> dict[str, Any] | None:
    """The first tool that wasn't called since the person's last message; the last one if any must be."""
    known = [tool["function"] for tool in tools]
    last = max((i for i, m in enumerate(messages) if isinstance(m, HumanMessage)), default=0)
    called = {call["name"] for m in messages[last:] if isinstance(m, AIMessage) for call in m.tool_calls}
    called |= {f"transfer_to_{m.name}" for m in messages if m.name}  # that agent has answered
    left = [tool for tool in known if tool["name"] not in called]
    forced = known[-1:] if choice and choice not in ("auto", "none") else []
    return next(iter(left or forced), None)


def _value(schema: Mapping[str, Any], name: str, defs: Mapping[str, Any], text: str) -> Any:
    """A value that a JSON schema takes."""
    if name in Scripted.values:
        found = Scripted.values[name]
        return found(text) if callable(found) else found
    if "$ref" in schema:
        return _value(defs[schema["$ref"].rpartition("/")[2]], name, defs, text)
    for choice in ("enum", "anyOf", "oneOf", "allOf"):
        if choice in schema:
            first = schema[choice][0]
            return first if choice == "enum" else _value(first, name, defs, text)
    match schema.get("type"):
        case "object":
            made = schema.get("properties", {}).items()
            return {key: _value(inner, key, defs, text) for key, inner in made}
        case "array":
            inner = schema.get("items", {"type": "string"})
            return [_value(inner, f"{name} {number}", defs, text) for number in (1, 2)]
        case "integer" | "number":
            return 3
        case "boolean":
            return True
        case _:
            return f"{name} for {text.rpartition(':')[2].strip()[:40]}"


class _Chroma(InMemoryVectorStore):
    @classmethod
    def from_documents(cls, documents: list[Document], embedding: Any, **_: Any) -> Any:
        return super().from_documents(documents, embedding)


class _Pages:
    """Stands for a loader of web pages."""

    def __init__(self, url: str, **_: Any) -> None:
        self.url = url

    def load(self) -> list[Document]:
        sentences = (f"{self.url} says {word} about agents, memory and rewards." for word in _WORDS)
        return [Document(page_content=" ".join(sentences), metadata={"source": self.url})]


_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")


def _found(*given: Any, **named: Any) -> list[dict[str, str]]:
    query = str(named.get("query") or (given[-1] if given else ""))
    return [{"url": f"page {n}", "content": f"result {n} of {query}"} for n in (1, 2)]


def _module(name: str, **attributes: Any) -> None:
    made = ModuleType(name)
    vars(made).update(attributes)
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent:
        if parent not in sys.modules:
            _module(parent)
        setattr(sys.modules[parent], last, made)


def _later(function: Callable[..., Any]) -> Any:
    async def run(*given: Any, **named: Any) -> Any:
        return function(*given, **named)

    return run


def _nothing(*_: Any, **__: Any) -> None: ...


def install(values: Mapping[str, Any] | None = None) -> None:
    """Replace models, search, pages and embeddings in this process; before anything of the example is imported."""
    os.environ.update({f"{name}_API_KEY": "none" for name in ("OPENAI", "ANTHROPIC", "TAVILY", "FIREWORKS")})
    os.environ["LANGSMITH_TRACING"] = "false"
    Scripted.values = values or {}
    made: Callable[..., Any] = lambda *_, **__: Scripted()  # noqa: E731
    for name, attribute in _MODELS:
        setattr(import_module(name), attribute, made)
    _module("langchain_fireworks", ChatFireworks=made)
    _module("IPython.display", display=_nothing, Image=_nothing, Markdown=_nothing)
    _stand_ins()


_MODELS = (
    *(("langchain_openai", name) for name in ("ChatOpenAI",)),
    ("langchain_openai.chat_models", "ChatOpenAI"),
    ("langchain_anthropic", "ChatAnthropic"),
    ("langchain.chat_models", "init_chat_model"),
    ("langchain.chat_models.base", "init_chat_model"),
    ("langchain.agents.factory", "init_chat_model"),
)


def _stand_ins() -> None:
    import langchain_community.document_loaders as loaders
    import langchain_community.vectorstores as stores
    import langchain_openai
    import langchain_tavily.tavily_search as tavily
    import langchain_text_splitters as splitters
    from langchain_community.tools import tavily_search as old
    from langchain_core.tools import retriever

    langchain_openai.OpenAIEmbeddings = lambda **_: DeterministicFakeEmbedding(size=1536)
    loaders.WebBaseLoader = _Pages
    tavily.TavilySearch._run = lambda _self, query="", **_: {"results": _found(query)}
    tavily.TavilySearch._arun = _later(tavily.TavilySearch._run)
    old.TavilySearchResults._run = lambda _self, query="", **_: (_found(query), {})
    old.TavilySearchResults._arun = _later(old.TavilySearchResults._run)
    stores.Chroma = _Chroma
    prompt = ChatPromptTemplate.from_template("Answer {question} from {context}")
    _module("langchain.hub", pull=lambda _: prompt)
    # Where LangChain 1 no longer has what a page imports: its new place.
    _module("langchain.tools.retriever", create_retriever_tool=retriever.create_retriever_tool)
    _module("langchain.schema", Document=Document)
    _module("langchain.text_splitter", **{n: getattr(splitters, n) for n in splitters.__all__})
    splitters.RecursiveCharacterTextSplitter.from_tiktoken_encoder = classmethod(
        lambda cls, chunk_size, chunk_overlap, **_: cls(
            chunk_size=4 * chunk_size, chunk_overlap=chunk_overlap
        )
    )
