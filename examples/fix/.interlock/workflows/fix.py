"""fix: plan, code, run the tests, fix until they pass, and commit what somebody has approved."""

from interlock.workflow import (
    CALLS,
    END,
    START,
    AgentState,
    Deps,
    Field,
    Graph,
    Input,
    Output,
    Runtime,
    State,
    ToolState,
    Workflow,
    agent,
    approve,
    ask_model,
    call,
    loop,
    node,
    place_calls,
    results,
    tools,
)


class FixInput(Input):
    wish: str = Field(min_length=1, description="what to change ★")
    command: str = Field("python3 -m unittest", description="runs the tests")


class FixOutput(Output):
    status: str
    plan: str
    report: str


class FixState(State, ToolState, AgentState, total=False):
    wish: str
    command: str
    plan: str
    task: str
    """What the agent is to do next."""
    report: str
    status: str


@node(reads=("wish",), writes=("plan", "task"))
async def plan(state: FixState, runtime: Runtime[Deps]) -> FixState:
    steps = await ask_model(runtime, f"Plan in three lines at most: {state['wish']}", role="planner")
    return {"plan": steps, "task": f"{state['wish']}\n\nThe plan:\n{steps}"}


@node(reads=("command", "head"), writes=("head",))
async def call_tests(state: FixState, runtime: Runtime[Deps]) -> FixState:
    return {"head": place_calls(state, runtime, call("run_shell_command", command=state["command"]))}


@node(reads=CALLS, writes=("task",), labels=("passed", "failed"))
async def judge(state: FixState, runtime: Runtime[Deps]) -> FixState:
    (tests,) = results(state, runtime)
    if tests.status == "success" and not tests.meta.get("exit_code"):
        return {"label": "passed"}
    return {"label": "failed", "task": f"The tests fail. Mend the code, not the tests.\n\n{tests.content}"}


@node(reads=("wish", "head"), writes=("head",))
async def call_commit(state: FixState, runtime: Runtime[Deps]) -> FixState:
    commit = call("run_shell_command", command=f"git commit -qam {state['wish']!r}")
    return {"head": place_calls(state, runtime, commit)}


@node(reads=("head",), writes=("head",))
async def call_log(state: FixState, runtime: Runtime[Deps]) -> FixState:
    """What counts is what the repository says: a kill may have hidden how the command ended."""
    return {"head": place_calls(state, runtime, call("run_shell_command", command="git log -1 --format=%s"))}


@node(reads=("wish", *CALLS), writes=("status",))
async def finish(state: FixState, runtime: Runtime[Deps]) -> FixState:
    (log,) = results(state, runtime)
    return {"status": "done" if state["wish"] in log.content else "failed"}


@node(writes=("status",))
async def give_up(state: FixState) -> FixState:
    return {"status": "failed"}


@node(writes=("status",))
async def leave_it(state: FixState) -> FixState:
    return {"status": "rejected"}


def build() -> Graph:
    g = Graph("fix", FixState)
    g.nodes(plan, call_tests, judge, call_commit, call_log, finish, give_up, leave_it)
    g.subgraph("code", agent(task="task", answer="report"))
    g.subgraph("verify", tools.build)
    g.subgraph("review", approve("The tests pass. Commit this?", show="report"))
    g.subgraph("commit", tools.build)
    g.subgraph("log", tools.build)

    g.edge(START, "plan")
    g.edge("plan", "code")
    g.by_label("code", {"done": "call_tests", "failed": "give_up"})
    g.edge("call_tests", "verify")
    g.edge("verify", "judge")
    loop(g, "again", most=3, again="code", enough="give_up")
    g.by_label("judge", {"passed": "review", "failed": "again"})
    g.by_label("review", {"approved": "call_commit", "rejected": "leave_it"})
    g.edge("call_commit", "commit")
    g.edge("commit", "call_log")
    g.edge("call_log", "log")
    g.edge("log", "finish")
    for last in ("finish", "give_up", "leave_it"):
        g.edge(last, END)
    return g


WORKFLOW = Workflow("fix", build, FixInput, FixOutput, prompt_field="wish", needs_model=True)
