"""`explain`: the structure behind `interlock policy check`."""


def test_it_names_the_deciding_rule_the_parts_and_what_was_considered(make, shell) -> None:
    text = (
        '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "git push"\ndecision = "deny"\npriority = 9\n'
        '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "git"\ndecision = "allow"\npriority = 5\n'
    )
    policy, _ = make(user=text)
    shown = policy.explain(shell("git log > out && git 'push' | rm -rf $x"), "execute", "default")
    assert shown.verdict.decision == "deny" and shown.verdict.rule.endswith("user.toml:1")
    assert [(p.argv, p.decision) for p in shown.parts] == [
        (("git", "log"), "allow"),
        (("git", "push"), "deny"),
        (("rm", "-rf", "$x"), "ask"),
    ]
    assert shown.parts[2].danger == "deletes recursively"
    assert shown.redirects == ("write out",)
    assert [(c.rule.rpartition(":")[2], c.met) for c in shown.considered[:2]] == [("1", "yes"), ("6", "yes")]
    assert [c.rank for c in shown.considered] == sorted((c.rank for c in shown.considered), reverse=True)
    assert shown.model_dump_json()


def test_it_says_what_cannot_be_seen(make, shell) -> None:
    policy, _ = make()
    shown = policy.explain(shell("eval $x"), "execute", "yolo")
    assert shown.unseen == "it runs something that is only known when it runs"
    assert shown.verdict.decision == "allow"


def test_a_plain_call_shows_which_rules_its_arguments_met(make, call) -> None:
    text = '[[rule]]\ntoolName = "w"\nargsPattern = "secret"\ndecision = "deny"\npriority = 9\n'
    policy, _ = make(user=text)
    shown = policy.explain(call("w", path="a"), "write", "default")
    assert [(c.decision, c.met) for c in shown.considered] == [("deny", "no"), ("ask", "yes")]
