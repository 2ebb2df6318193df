"""notification: has a terminal say that a run waits: its bell, or by OSC 9 or 777 a notification of the desktop."""

from typing import TextIO

from interlock.state.events import NotificationEvent
from interlock.state.text import visible


def ring(event: NotificationEvent, stream: TextIO) -> None:
    """Writes nothing where `stream` is no terminal."""
    if not stream.isatty():
        return
    title, message = (visible(" ".join(text.split())) for text in (event.title, event.message))
    sequences = {
        "bell": "\a",
        "osc9": f"\x1b]9;{title}: {message}\a",
        "osc777": f"\x1b]777;notify;{title.replace(';', ',')};{message.replace(';', ',')}\a",
    }
    stream.write("".join(sequences[way] for way in event.ways))
    stream.flush()
