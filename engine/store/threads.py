"""threads: the checkpoints of a LangGraph thread in another database: a file of SqliteSaver's, or PostgreSQL."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import ormsgpack
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, EXT_NUMPY_ARRAY, JsonPlusSerializer

from interlock.engine.store import is_server, without_password
from interlock.engine.store.sqlite import SqliteConnection, another_programs
from interlock.graphs._stored import Names, loader_of
from interlock.state.errors import UserError

_SHOWN = 5
"""Threads that an error lists."""


def thread_of(url: str, thread: str, types: Iterable[tuple[str, ...]], known: Names) -> list[CheckpointTuple]:
    """All checkpoints of a thread, oldest first. Raises `UserError`.

    `types`: classes of the graph, which another program may have known by another module: `__main__`, say.
    `known`: all that the checkpoints may hold.
    """
    with _opened(url, _Reader({*types}, known)) as saver:
        found = [*saver.list({"configurable": {"thread_id": thread}})]
        if found:
            return found[::-1]
        others = [one.config["configurable"]["thread_id"] for one in saver.list(None)]
    known = ", ".join([*dict.fromkeys(others)][:_SHOWN])
    raise UserError(
        f"No thread {thread!r} in {without_password(url)}. {f'The newest are: {known}.' if known else 'It has none.'}"
    )


class _Reader(JsonPlusSerializer):
    """Loads the graph's own classes as this process knows them, and no class that it doesn't know."""

    def __init__(self, types: set[tuple[str, ...]], known: Names) -> None:
        super().__init__(allowed_msgpack_modules=None, __unpack_ext_hook__=loader_of(known))
        self._known = known
        names = [name for _, name in types]
        self._module = {name: module for module, name in types if names.count(name) == 1}
        self._lost: list[str] = []

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, saved = data
        return super().loads_typed((kind, self._renamed(saved)) if kind == "msgpack" else data)

    def _renamed(self, saved: bytes) -> bytes:
        plain = self._plain(saved)
        for lost in self._lost:  # an error inside `_object` would lose its text
            raise UserError(
                f"The thread holds a {lost}; neither the graph's types nor its file name such a class."
            )
        return ormsgpack.packb(plain, option=ormsgpack.OPT_NON_STR_KEYS)

    def _plain(self, saved: bytes) -> Any:
        return ormsgpack.unpackb(saved, ext_hook=self._object, option=ormsgpack.OPT_NON_STR_KEYS)

    def _object(self, code: int, saved: bytes) -> ormsgpack.Ext:
        """An object is a list of module, class and what it is made of."""
        if code == EXT_NUMPY_ARRAY:
            return ormsgpack.Ext(code, saved)
        inner = self._plain(saved)
        if code != EXT_DELTA_SNAPSHOT:
            module, name, *made = cast("list[Any]", inner)
            if (module, name) not in self._known:
                if name not in self._module:
                    self._lost.append(f"{module}.{name}")
                module = self._module.get(name, module)
            inner = [module, name, *made]
        return ormsgpack.Ext(code, ormsgpack.packb(inner, option=ormsgpack.OPT_NON_STR_KEYS))


@contextmanager
def _opened(url: str, serde: Any) -> Generator[BaseCheckpointSaver[Any]]:
    if is_server(url):
        with _postgres(url, serde) as saver:
            yield saver
        return
    path = Path(url.removeprefix("sqlite:///")).expanduser()
    if not path.is_file():
        raise UserError(
            f"No file {url!r}. Expected one of SqliteSaver's, or postgresql://USER@HOST/DATABASE."
        )
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError:
        raise UserError(
            "Reading SqliteSaver's file needs the extra `memory`: install interlock-agent[memory]."
        ) from None
    with another_programs(path) as conn:
        saver = SqliteSaver(conn, serde=serde)
        saver.is_setup = True  # it would write its tables
        try:
            yield saver
        except SqliteConnection.errors as error:
            raise UserError(f"{path} isn't a SqliteSaver database: {error}.") from error


@contextmanager
def _postgres(url: str, serde: Any) -> Generator[BaseCheckpointSaver[Any]]:
    try:
        savers: Any = import_module("langgraph.checkpoint.postgres")
        driver: Any = import_module("psycopg")
    except ImportError as error:
        raise UserError(
            f"Reading PostgreSQL needs the extra `fleet`: install interlock-agent[fleet] ({error.name} is missing)."
        ) from error
    try:
        with savers.PostgresSaver.from_conn_string(url) as saver:
            saver.serde = serde
            yield saver
    except driver.Error as error:
        raise UserError(f"{without_password(url)} can't be read: {' '.join(str(error).split())}") from error
