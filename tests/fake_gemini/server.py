"""server: the fake as a program: `python tests/fake_gemini/server.py --port-file PORT --script FILE`."""

import argparse
import json
import sys
from pathlib import Path


def main() -> None:
    """Serve until killed."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fake_gemini.fake import FakeGemini

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--port-file", type=Path, help="the port is written here once the server listens")
    parser.add_argument("--script", type=Path, help="JSON; see README.md")
    parser.add_argument("--log", type=Path, help="one JSON line a request is appended here")
    given = parser.parse_args()
    script = json.loads(given.script.read_text(encoding="utf-8")) if given.script else []
    fake = FakeGemini(script, given.port, given.log)
    if given.port_file:
        whole = given.port_file.with_suffix(".part")
        whole.write_text(str(fake.port), encoding="utf-8")
        whole.rename(given.port_file)
    print(f"READY {fake.url}", flush=True)
    fake.serve()


if __name__ == "__main__":
    main()
