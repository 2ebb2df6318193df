"""Stack traces and warnings are found in full, in the formats that programs print."""

import textwrap

import pytest

from interlock.nodes.summarize import (
    extract_exit_status_lines,
    extract_stack_traces,
    extract_warning_lines,
    find_missing_texts,
)

PYTHON = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
    ~^^
  File "b.py", line 2, in f
    raise ValueError("no")
ValueError: no"""
JAVA = """\
Exception in thread "main" java.lang.IllegalStateException: broken
\tat com.example.A.run(A.java:10)
\tat com.example.Main.main(Main.java:3)
Caused by: java.io.IOException: disk
\tat com.example.B.read(B.java:7)
\t... 2 more"""
NODE = """\
TypeError: x is not a function
    at Object.<anonymous> (/w/a.js:1:1)
    at node:internal/main:23:47"""
RUST = """\
thread 'main' panicked at src/main.rs:2:5:
explicit panic
stack backtrace:
   0: rust_begin_unwind
             at /rustc/x/library/std/src/panicking.rs:652:5
   1: core::panicking::panic_fmt"""
GO = """\
panic: runtime error: index out of range [5] with length 3

goroutine 1 [running]:
main.main()
\t/w/main.go:8 +0x1d
exit status 2"""
RUBY = """\
a.rb:2:in `f': no (RuntimeError)
\tfrom a.rb:5:in `<main>'"""
GDB = """\
Program received signal SIGSEGV
#0  0x0000555 in main () at a.c:3
#1  0x0000777 in start ()"""
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 1, in <module>
  |     raise g
  | ExceptionGroup: two (1 sub-exception)"""


@pytest.mark.parametrize(
    "trace", [PYTHON, JAVA, NODE, RUST, GO, RUBY, GDB, GROUP, textwrap.indent(PYTHON, "    ")]
)
def test_a_trace_is_found_whole(trace: str) -> None:
    (found,) = extract_stack_traces(f"collecting ...\nok 1\n{trace}\n\nok 2\ndone")
    assert found in f"{trace}\n" and trace.splitlines()[-1] in found
    assert found.splitlines()[0] in trace.splitlines()[:2]


def test_traces_one_after_the_other_are_both_found() -> None:
    chained = f"{PYTHON}\n\nDuring handling of the above exception, another exception occurred:\n\n{PYTHON}x"
    assert extract_stack_traces(chained) == [PYTHON, f"{PYTHON}x"]
    assert extract_stack_traces(f"{PYTHON}\n{PYTHON}\n") == [PYTHON], "the same one counts once"


def test_ordinary_output_holds_none() -> None:
    text = (
        "a.py:1: note\nlook at this\n  1. first\nat the end\n   12 passed in 3 s\n#1 in the list\n  12: grep"
    )
    assert extract_stack_traces(text) == []


def test_warnings_are_lines() -> None:
    text = "ok\nnpm WARN deprecated x@1\na.py:1: DeprecationWarning: old\n2 warnings\nforewarned is forearmed\nok"
    assert extract_warning_lines(text) == [
        "npm WARN deprecated x@1",
        "a.py:1: DeprecationWarning: old",
        "2 warnings",
    ]
    assert extract_warning_lines("W: warning", traces=["W: warning"]) == []


def test_what_is_there_is_not_missing_however_indented() -> None:
    assert find_missing_texts([PYTHON], "<error>\n" + textwrap.indent(PYTHON, "  ") + "\n</error>") == []
    assert find_missing_texts([PYTHON], PYTHON.replace("ValueError: no", "ValueError: …")) == [PYTHON]


def test_how_the_command_ended() -> None:
    assert extract_exit_status_lines("Output:\nExit Code: 7\nx\ny\nExit Code: 1\nSignal: SIGTERM") == [
        "Exit Code: 1",
        "Signal: SIGTERM",
    ]
