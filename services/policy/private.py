"""private: asks about calls that lead to this machine or its network, whatever allows the tool."""

from interlock.services.policy.rule import canonical
from interlock.state.calls import CallView, ToolError, Verdict
from interlock.tools._http import private_address, url_problem

_OPENING = frozenset({"web_fetch", "browser_action"})
"""Tools that connect to the address in their argument `url`, and to no other private one."""
RULE = "private address"


async def asked_if_private(call: CallView, verdict: Verdict) -> Verdict:
    """Limit a verdict to ask, without an always-choice, if the call's host is private now.

    The tool checks the address again when it connects: one that turns private later wasn't approved.
    """
    url = call.args.get("url")
    if canonical(call.name) not in _OPENING or not isinstance(url, str) or url_problem(url):
        return verdict
    try:
        private = await private_address(url)
    except ToolError:
        return verdict  # the tool fails for the same reason
    if private is None:
        return verdict
    reason = f"`{call.name}` leads to a private address ({private}), which is asked about each time."
    changed = {"decision": "ask", "rule": f"{RULE}: {private}", "reason": reason, "by_checker": True}
    return verdict.model_copy(update={**changed, "session": None})
