"""tracing: LangSmith stays off, whatever the environment says: no run is sent to a third party."""

import logging


def turn_tracing_off() -> None:
    """For this process. LangGraph traces too, so the engine calls this before it builds a graph."""
    import langsmith

    langsmith.configure(enabled=False)


def quiet_clients() -> None:
    """Keep client libraries from writing warnings to stderr; what matters in them comes back as errors and problems."""
    for name in ("google_genai", "langchain_google_genai", "langchain_openai"):
        logging.getLogger(name).addHandler(logging.NullHandler())
