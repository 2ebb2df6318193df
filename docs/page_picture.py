"""page_picture: the picture of the page in README: a real server, a real run, Chromium. Part of `make pictures`."""

import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests")]
from web.lab import Lab, Person, browsing  # noqa: E402 - beside the tests

PROMPT = "The test of `discount` fails: 25 % of 80 gives 200. Find out why, and fix it."
PRICES = (
    '"""Prices of the shop."""\n\n\ndef discount(price, percent):\n    """The price less a percentage."""\n'
)
REPLIES = [
    {
        "text": "I read both files first.",
        "tool_calls": [
            {"name": "read_file", "args": {"file_path": name}} for name in ("prices.py", "test_prices.py")
        ],
    },
    {
        "text": "Found it: `discount` divides by **10** where a percentage is a *hundredth*. One line changes.",
        "tool_calls": [
            {
                "name": "replace",
                "args": {
                    "file_path": "prices.py",
                    "old_string": "price * percent / 10",
                    "new_string": "price * percent / 100",
                },
            }
        ],
    },
    {"text": "Fixed."},
]


def main() -> None:
    if not shutil.which("chromium"):
        print("chromium isn't installed: the picture of the page stays as it is")
        return
    with tempfile.TemporaryDirectory() as folder, browsing() as browser:
        lab = Lab(Path(folder))
        lab.script("picture", REPLIES)
        shop = lab.home / "shop"
        shop.mkdir()
        (shop / "prices.py").write_text(f"{PRICES}    return price - price * percent / 10\n")
        (shop / "test_prices.py").write_text("from prices import discount\n\nassert discount(80, 25) == 60\n")
        model = f"script:{lab.home / 'picture.json'}"
        lab.interlock("-p", PROMPT, "-m", model, "--skip-trust", work="shop")
        (run,) = lab.runs()
        lab.serve()
        somebody = Person(browser, lab, device_scale_factor=1.5)
        somebody.page.set_viewport_size({"width": 1280, "height": 800})
        somebody.do_go(f"/run/{run}")
        somebody.do_see(".map .waits")
        somebody.page.wait_for_timeout(500)
        somebody.page.screenshot(path=HERE / "pictures" / "page.png")
        somebody.context.close()
        lab.kill()


if __name__ == "__main__":
    main()
