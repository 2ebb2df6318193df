"""A guessed encoding is confirmed by whoever approves the first edit that needs it."""

import subprocess
from pathlib import Path

from commands import Run
from folders import put
from scripted import call, shell, tools

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


def test_where_edits_need_no_approval_the_first_with_a_guess_does_and_a_replay_asks_the_same(
    run: Run, tmp_path: Path
) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / "work" / name).write_bytes(GBK)
    replies = [
        tools(edit("a.txt", "=20", "=2")),
        tools(edit("a.txt", "=2", "=20度"), expect="Edited 'a.txt'"),
        tools(edit("b.txt", "=20", "=20度"), expect="Edited 'a.txt'"),
        {"text": "done", "expect": "Edited 'b.txt'"},
    ]
    put(tmp_path / "script.json", replies)
    first = run("-p", "go", "--approval-mode", "auto_edit", "-m", f"script:{tmp_path / 'script.json'}")
    assert (first.code, "needs an encoding that a person confirmed" in first.out + first.err) == (75, True)
    assert run("replay", "latest").code == 0  # up to the request that is open
    assert run("resume", "latest", "--approve", "all").code == 0
    assert (tmp_path / "work/b.txt").read_bytes() == GBK.replace(b"20", "20度".encode("gbk"))
    assert run("replay", "latest").code == 0


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


def test_a_diff_reads_each_file_in_its_encoding_and_a_patch_keeps_its_bytes(run: Run, tmp_path: Path) -> None:
    work, wide = tmp_path / "work", "Größe=1\n".encode("utf-16")
    (work / "a.txt").write_bytes(GBK)
    (work / "w.txt").write_bytes(wide)
    (work / "café.bin").write_bytes(b"\0\1\2")
    put(work / ".editorconfig", "[{a,new}.txt]\ncharset = gb18030\n")
    change = "printf '\\3' >> caf*.bin; iconv -f utf-8 -t gb18030 <<< 'neu=长' > new.txt"
    replies = [
        tools(edit("a.txt", "=20", "=20度"), edit("w.txt", "Größe", "Länge"), shell(change)),
        {"text": "done"},
    ]
    put(tmp_path / "script.json", replies)
    done = run("-p", "go", "-y", "--skip-trust", "-m", f"script:{tmp_path / 'script.json'}")
    assert done.code == 0, done.err
    shown = run("diff", "latest", "--files").out
    assert "-温度=20\n+温度=20度\n 尺寸=1\n" in shown
    assert "-Größe=1\n+Länge=1\n" in shown
    assert "+neu=长\n" in shown
    assert "Binary files a/café.bin and b/café.bin differ" in shown
    exported = run("export", "latest", "--format", "json").json
    assert "+温度=20度" in exported["diff"]
    assert "+温度=20度" in exported["calls"][0]["diff"]
    assert run("export", "latest", "--format", "patch", "-o", "../patch").code == 0
    for name, data in (("a.txt", GBK), ("w.txt", wide), ("café.bin", b"\0\1\2")):
        (tmp_path / "again" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "again" / name).write_bytes(data)
    subprocess.run(["git", "apply", "../patch"], cwd=tmp_path / "again", check=True)
    for name in ("a.txt", "w.txt", "café.bin", "new.txt"):
        assert (tmp_path / "again" / name).read_bytes() == (work / name).read_bytes()
