"""edit: one replacement in a text: found and made without a model if that can be, with one if it must, else refused.

What is found is applied, and written where rules or a person let it be; when the file changed while a person was asked,
it is read again. What isn't found, after one question to each helper, ends in `fail`.
"""

from langgraph.graph import END, START

from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.edit import routes
from interlock.nodes.edit.apply import apply
from interlock.nodes.edit.check_external_change import check_external_change
from interlock.nodes.edit.confirm_present import confirm_present
from interlock.nodes.edit.correct_target import correct_target
from interlock.nodes.edit.fail import fail
from interlock.nodes.edit.fix_edit import fix_edit
from interlock.nodes.edit.match import match
from interlock.nodes.edit.match_again import match_again
from interlock.nodes.edit.read import read
from interlock.nodes.edit.repair import repair
from interlock.nodes.edit.rights import check_rights, take_approval
from interlock.nodes.edit.write import write
from interlock.nodes.tools.await_person import await_person
from interlock.state.edit import EditInput, EditOutput, EditState


def build() -> Graph:
    g = Graph("edit", EditState)
    for node in (read, match, repair, correct_target, check_external_change, fix_edit, confirm_present):
        g.node(node.__name__, node)
    for node in (match_again, apply, check_rights, take_approval, write, fail):
        g.node(node.__name__, node)
    g.node("await_approval", await_person)

    g.edge(START, "read")
    g.route("read", routes.after_read, {"create": "check_rights", "match": "match", "refused": "fail"})
    g.route("match", routes.after_match, {"right count": "apply", "wrong count": "fail", "none": "repair"})
    repaired = {"found": "apply", "not found": "correct_target", "not for a model": "fail"}
    g.route("repair", routes.after_repair, repaired)
    targeted = {"found": "apply", "not found": "check_external_change"}
    g.route("correct_target", routes.after_correct_target, targeted)
    g.route(
        "check_external_change", routes.after_check_external_change, {"changed": "fail", "same": "fix_edit"}
    )
    fixed = {"no changes needed": "confirm_present", "changed strings": "match_again", "no answer": "fail"}
    g.route("fix_edit", routes.after_fix_edit, fixed)
    g.route("confirm_present", routes.after_confirm_present, {"present": END, "absent": "fail"})
    g.route("match_again", routes.after_match_again, {"found": "apply", "not found": "fail"})
    g.route("apply", routes.after_apply, {"write": "check_rights", "keep": END, "refused": "fail"})
    g.by_label("check_rights", {"allowed": "write", "asked": "await_approval", "denied": "fail"})
    g.edge("await_approval", "take_approval")
    g.by_label("take_approval", {"proceed": "write", "changed since": "read", "refused": "fail"})
    g.edge("write", END)
    g.edge("fail", END)
    return g


PIPELINE = Pipeline("edit", build, EditInput, EditOutput)
