"""served: what the page and the API are served from."""

from typing import NamedTuple

from interlock.cli.web.apart import Apart
from interlock.cli.web.prompts import Prompts
from interlock.engine.client import Client, Options


class Served(NamedTuple):
    """What answers are made of. `options` are those of each run that is started here."""

    options: Options
    client: Client
    apart: Apart
    prompts: Prompts
