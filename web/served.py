"""served: what the page and the API are served from."""

from typing import NamedTuple

from interlock.engine.client import Client, Options
from interlock.web.apart import Apart
from interlock.web.prompts import Prompts


class Served(NamedTuple):
    """What answers are made of. `options` are those of each run that is started here."""

    options: Options
    client: Client
    apart: Apart
    prompts: Prompts
