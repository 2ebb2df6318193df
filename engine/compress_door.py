"""compress_door: from the input of `compress` to its state, and back."""

from collections.abc import Mapping
from typing import Any, cast

from interlock.engine.outside import Outside, append_history
from interlock.state.compress import CompressInput, CompressOutput, CompressStatus


def enter_compress(given: CompressInput, out: Outside) -> dict[str, Any]:
    return {
        "head": append_history(out.transcript, given.history),
        "model": out.model,
        "last_prompt_tokens": given.last_prompt_tokens or 0,
        "force": given.force,
        "token_limit": given.token_limit,
        "threshold": given.threshold,
        "preserve": given.preserve,
        "compress_failed_at": given.failed_at_tokens or 0,
    }


def leave_compress(values: Mapping[str, Any], out: Outside) -> CompressOutput:
    head, snapshot = values["head"], values.get("snapshot")
    messages = out.transcript.read(head) if head else []
    return CompressOutput(
        status=cast(CompressStatus, values["compress_status"]),
        history=[m.model_dump(mode="json", exclude_defaults=True) for m in messages],
        tokens_before=values["tokens_before"],
        tokens_after=values["tokens_after"],
        snapshot=out.transcript.message(snapshot).text if snapshot else None,
        failed_at_tokens=values.get("compress_failed_at") or None,
    )
