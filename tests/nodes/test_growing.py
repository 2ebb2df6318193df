"""Data gathered incrementally from a history that grows, is cut or is replaced equals a fresh pass over it."""

from random import Random

from interlock.nodes.turn_messages import maskable_output_indices
from interlock.state.messages import IncrementalScan, Message, ToolCall, curate_history, unanswered_calls


class Owner:
    pass


def some_message(random: Random, number: int) -> Message:
    kind = random.choice(["user", "assistant", "assistant", "empty", "calls", "tool", "tool"])
    if kind == "calls":
        calls = tuple(ToolCall(id=f"{number}.{i}", name="t", args={}) for i in range(random.randint(1, 3)))
        return Message(role="assistant", content="", tool_calls=calls)
    if kind == "tool":
        answered = f"{random.randint(0, number)}.{random.randint(0, 2)}"
        size = random.choice([10, 40_000])
        return Message(role="tool", content="x " * size, tool_call_id=answered, name="t", status="success")
    if kind == "empty":
        return Message(role="assistant", content="")
    return Message(role="user" if kind == "user" else "assistant", content=f"message {number}")


def test_a_history_is_looked_at_as_if_for_the_first_time() -> None:
    random, owner = Random(7), Owner()
    history: list[Message] = []
    for number in range(400):
        history.append(some_message(random, number))
        if random.random() < 0.05:
            history = history[: random.randint(0, len(history))]
        if history and random.random() < 0.05:
            history = [*history[:-1], some_message(random, number)]
        assert curate_history(history, owner) == curate_history(history)
        assert unanswered_calls(history, owner) == unanswered_calls(history)
        assert maskable_output_indices(history, owner) == maskable_output_indices(history)


def test_only_what_is_new_is_looked_at_and_owners_know_nothing_of_each_other() -> None:
    looked: list[str] = []

    def add(texts: list[str], message: Message) -> None:
        looked.append(message.text)
        texts.append(message.text)

    texts = IncrementalScan(list[str], add)
    history = [Message(role="user", content=str(n)) for n in range(100)]
    one, other = Owner(), Owner()
    for end in (10, 50, 100):
        assert texts(history[:end], one) == [str(n) for n in range(end)]
    assert len(looked) == 100
    assert texts(history[50:], other) == [str(n) for n in range(50, 100)]
    assert texts(history, one) == [str(n) for n in range(100)] and len(looked) == 150
