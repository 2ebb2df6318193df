"""plugin: the server as a fixture."""

from collections.abc import Iterator

import pytest
from fake_gemini.fake import FakeGemini


@pytest.fixture
def fake_gemini() -> Iterator[FakeGemini]:
    """A started server without a script."""
    with FakeGemini() as server:
        yield server
