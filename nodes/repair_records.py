"""repair_records: what a repair keeps as detached records of the chain: its state holds only their ids."""

import json
from collections.abc import Mapping

from pydantic import BaseModel

from interlock.state.checks import CheckEnd
from interlock.state.deps import Transcript
from interlock.state.messages import Message
from interlock.state.repair import Attempt, RepairState, Suspects


def store_model_record(transcript: Transcript, value: BaseModel) -> str:
    """Store a value as JSON; returns the record."""
    return _store_text(transcript, value.model_dump_json())


def store_files(transcript: Transcript, files: Mapping[str, str]) -> str:
    """Store texts by path; returns the record."""
    return _store_text(transcript, json.dumps(dict(files), ensure_ascii=False))


def store_attempts(transcript: Transcript, attempts: list[Attempt]) -> str:
    """Store what was tried so far; returns the record."""
    return _store_text(
        transcript, json.dumps([one.model_dump(mode="json") for one in attempts], ensure_ascii=False)
    )


def _store_text(transcript: Transcript, text: str) -> str:
    return transcript.append("", [Message(role="tool", content=text)])


def load_files(transcript: Transcript, record: str) -> dict[str, str]:
    """Load texts by path; an empty record: none."""
    return json.loads(transcript.read_message(record).text) if record else {}


def load_check_end(transcript: Transcript, state: RepairState) -> CheckEnd:
    """Load how the check ended with the best known state."""
    return CheckEnd.model_validate_json(transcript.read_message(state["checked"]).text)


def load_suspects(transcript: Transcript, state: RepairState) -> Suspects:
    """Load where the fault may be."""
    return Suspects.model_validate_json(transcript.read_message(state["suspects"]).text)


def load_attempts(transcript: Transcript, state: RepairState) -> list[Attempt]:
    """Load what was tried so far."""
    if not state.get("tried"):
        return []
    return [Attempt.model_validate(row) for row in json.loads(transcript.read_message(state["tried"]).text)]
