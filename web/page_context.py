"""page_context: what the page and the API are served from."""

from typing import NamedTuple

from interlock.engine.client import Client, Options
from interlock.web.isolated_process import IsolatedRunner
from interlock.web.run_resumer import RunResumer


class PageContext(NamedTuple):
    """What answers are made of. `options` are those of each run that is started here."""

    options: Options
    client: Client
    apart: IsolatedRunner
    prompts: RunResumer
