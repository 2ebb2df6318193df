"""A guessed encoding is confirmed by whoever approves the first edit that needs it."""

from pathlib import Path

from commands import Run
from folders import put
from scripted import call, tools

GBK = "温度=20\n尺寸=1\n".encode("gbk")


def edit(name: str, old: str, new: str) -> dict[str, object]:
    return call("replace", file_path=name, old_string=old, new_string=new)


def test_approving_an_edit_confirms_the_encoding_for_files_like_it(run: Run, tmp_path: Path) -> None:
    work = tmp_path / "work"
    for name in ("a.txt", "b.txt", "c.ini"):
        (work / name).write_bytes(GBK)
    replies = [
        tools(edit("a.txt", "=20", "=20度")),
        tools(edit("b.txt", "=20", "=20度"), expect="Edited 'a.txt'"),
        tools(edit("c.ini", "=20", "=20度"), expect="Edited 'b.txt'"),
        {"text": "done", "expect": "Edited 'c.ini'"},
    ]
    put(tmp_path / "script.json", replies)
    first = run("-p", "go", "-m", f"script:{tmp_path / 'script.json'}")
    second, third, last = (run("resume", "latest", "--approve", "all") for _ in range(3))
    assert [one.code for one in (first, second, third, last)] == [75, 75, 75, 0]
    assert ["guessed: gb18030" in one.out + one.err for one in (first, second, third)] == [True, False, True]
    assert "+温度=20度" in first.out + first.err
    for name in ("a.txt", "b.txt", "c.ini"):
        assert (work / name).read_bytes() == GBK.replace(b"20", "20度".encode("gbk"))


def test_nobody_to_ask_means_a_refusal(run: Run, tmp_path: Path) -> None:
    (tmp_path / "work/a.txt").write_bytes(GBK)
    put(
        tmp_path / "script.json",
        [tools(edit("a.txt", "=20", "=20度")), {"text": "done", "expect": "is taken for"}],
    )
    assert run("-p", "go", "-y", "-m", f"script:{tmp_path / 'script.json'}").code == 0
    assert (tmp_path / "work/a.txt").read_bytes() == GBK
    put(tmp_path / "work/.interlock/settings.json", {"files": {"encodings": {"*.txt": "gbk"}}})
    put(
        tmp_path / "script.json", [tools(edit("a.txt", "=20", "=20度")), {"text": "done", "expect": "Edited"}]
    )
    assert run("-p", "go", "-y", "--skip-trust", "-m", f"script:{tmp_path / 'script.json'}").code == 0
    assert "20度".encode("gbk") in (tmp_path / "work/a.txt").read_bytes()
