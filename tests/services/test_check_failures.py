"""Which failed tests are read in what runners print.

`tests/test_repair.py` runs node, Go and cargo themselves; outputs of jest, vitest, rustc and JUnit are written after
their documentation.
"""

import pytest

from interlock.services.checks.failures import parse_failures

PYTEST = """..F                                                [100%]
=================================== FAILURES ===================================
__________________________ test_a_cut_leaves_no_dash ___________________________

    def test_a_cut_leaves_no_dash():
>       assert slugify("one two three", limit=8) == "one-two"
E       AssertionError: assert 'one-two-' == 'one-two'

test_slugs.py:9: AssertionError
=========================== short test summary info ============================
FAILED test_slugs.py::test_a_cut_leaves_no_dash - AssertionError: assert 'one...
1 failed, 2 passed in 0.14s
"""
BROKEN_PYTEST = """==================================== ERRORS ====================================
________________________ ERROR collecting test_slugs.py ________________________
ImportError while importing test module '/w/test_slugs.py'.
E   ModuleNotFoundError: No module named 'slug'
=========================== short test summary info ============================
ERROR test_slugs.py
1 error in 0.09s
"""
UNITTEST = """..F
======================================================================
FAIL: test_last_one_is_full (test_pages.PageTest.test_last_one_is_full)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/w/test_pages.py", line 17, in test_last_one_is_full
AssertionError: Lists differ: ['?page=1', '?page=3'] != ['?page=1']

----------------------------------------------------------------------
Ran 3 tests in 0.001s

FAILED (failures=1)
"""
NODE = """TAP version 13
# Subtest: sums with tax
not ok 1 - sums with tax
  ---
  error: |-
    200 !== 238
  ...
# Subtest: nothing
ok 2 - nothing
1..2
# fail 1
"""
JEST = """FAIL ./cart.test.js
  ✕ sums with tax (3 ms)

  ● sums with tax

    expect(received).toBe(expected) // Object.is equality

    Expected: 238
    Received: 200

      at Object.toBe (cart.test.js:4:49)

Test Suites: 1 failed, 1 total
Tests:       1 failed, 1 total
"""
VITEST = """ ❯ cart.test.mjs (2 tests | 1 failed) 7ms
⎯⎯⎯⎯⎯⎯⎯ Failed Tests 1 ⎯⎯⎯⎯⎯⎯⎯

 FAIL  cart.test.mjs > sums > with tax
AssertionError: expected 200 to be 238 // Object.is equality
 ❯ cart.test.mjs:5:49
⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯⎯[1/1]⎯

 Test Files  1 failed (1)
"""
GO = """--- FAIL: TestRate (0.00s)
    tax_test.go:7: got 0, expected 19
FAIL
FAIL	shop	0.002s
"""
CARGO = """running 2 tests
test tests::nothing_off ... ok
test tests::a_quarter_off ... FAILED

failures:

---- tests::a_quarter_off stdout ----
thread 'tests::a_quarter_off' panicked at src/lib.rs:12:9:
assertion `left == right` failed

failures:
    tests::a_quarter_off

test result: FAILED. 1 passed; 1 failed
"""
RUSTC = """error[E0425]: cannot find value `percnt` in this scope
 --> src/lib.rs:3:21
error: could not compile `shop` (lib test) due to 1 previous error
"""
JUNIT = """<testsuite tests="2" failures="1"><testcase classname="t.Tax" name="rate" time="0"/>
<testcase classname="t.Tax" name="half" file="t/tax_test.py"><failure message="1 &lt; 2">trace</failure></testcase>
</testsuite>"""


@pytest.mark.parametrize(
    ("output", "name", "told"),
    [
        (PYTEST, "test_slugs.py::test_a_cut_leaves_no_dash", "'one-two-' == 'one-two'"),
        (BROKEN_PYTEST, "test_slugs.py", "No module named 'slug'"),
        (UNITTEST, "test_last_one_is_full (test_pages.PageTest.test_last_one_is_full)", "Lists differ"),
        (NODE, "sums with tax", "200 !== 238"),
        (JEST, "sums with tax", "Received: 200"),
        (VITEST, "cart.test.mjs::sums > with tax", "expected 200 to be 238"),
        (GO, "TestRate", "tax_test.go:7: got 0, expected 19"),
        (CARGO, "tests::a_quarter_off", "src/lib.rs:12:9"),
        (RUSTC, "error[E0425]: cannot find value `percnt` in this scope", "src/lib.rs:3:21"),
        (JUNIT, "t/tax_test.py::t.Tax.half", "1 < 2"),
    ],
)
def test_a_failed_test_is_read_with_what_was_printed_of_it(output: str, name: str, told: str) -> None:
    (failed,) = parse_failures(output)
    assert failed.name == name and told in failed.detail
    assert failed.is_broken == (output in (BROKEN_PYTEST, RUSTC))


@pytest.mark.parametrize("output", ["", "make: *** [test] Error 1", "All 3 checks failed somehow"])
def test_an_unknown_output_names_no_test(output: str) -> None:
    assert parse_failures(output) == ()
