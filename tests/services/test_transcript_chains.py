"""A new chain names the old one, and damage to either is found."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.engine.store import Store
from interlock.engine.store.chain import SqlChain
from interlock.services.files.blobs import inflate_if_deflated
from interlock.services.transcript import ChainTranscript
from interlock.state.messages import Message


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[ChainTranscript]:
    store = Store(tmp_path / "home")
    store.create_or_migrate()
    conn = store.connect()
    yield ChainTranscript(SqlChain(conn), store.outputs, "run")
    conn.close()


def said(text: str) -> Message:
    return Message(role="user", content=text)


def test_a_new_chain_names_the_old_head(chain: ChainTranscript) -> None:
    old = chain.append("", [said("a"), said("b")])
    new = chain.append("", [said("s"), said("b")], continues=old)
    assert chain.find_continued_head(new) == old and chain.find_continued_head(old) == ""
    assert chain.append("", [said("s"), said("b")], continues=old) == new, "appending twice is harmless"
    assert [m.text for m in chain.read(new)] == ["s", "b"]
    further = chain.append(new, [said("c")])
    assert chain.find_continued_head(further) == old
    assert [m.text for m in chain.read(old)] == ["a", "b"], "the old one is untouched"
    other = chain.append("", [said("b")])
    assert len({chain.append("", [said("s")], continues=c) for c in (old, other, "")}) == 3


@pytest.mark.parametrize("text", ["a", "b", "s"])
def test_damage_is_found_on_both_sides_of_a_compression(chain: ChainTranscript, text: str) -> None:
    old = chain.append("", [said("a"), said("b")])
    new = chain.append("", [said("s")], continues=old)
    assert list(chain.verify_chain(new)) == []
    conn = chain._records.conn
    rows = conn.execute("select id, body from chain").fetchall()
    (record,) = (name for name, body in rows if f'"{text}"'.encode() in inflate_if_deflated(body))
    conn.execute_raw("update chain set body = $1 where id = $2", (b'{"role":"user","content":"x"}', record))
    assert len(list(chain.verify_chain(new))) == 1
    conn.execute_raw("delete from chain where id = $1", (old,))
    assert f"record {old} is missing" in chain.verify_chain(new)


def test_what_was_rolled_back_is_appended_again(chain: ChainTranscript) -> None:
    head = chain.append("", [said("a")])
    with pytest.raises(OSError, match="disk"), chain._records.conn.transaction():
        chain.append(head, [said("b")])
        raise OSError("disk")
    again = chain.append(head, [said("b")])
    assert list(chain.verify_chain(again)) == []
