"""What is left when all is over: every promise kept, or how many weren't."""

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.faults.load import Load, Told
from tests.faults.world import World

NEXT_QUESTION = 16.0  # seconds within which a session must take the next question


@dataclass
class Verdict:
    turns: int = 0
    accepted: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)  # accepted, and not in the session with an answer and a slot
    doubled: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)  # sessions that take no further question
    missing: list[str] = field(default_factory=list)  # characters that a reader saw and no answer has
    repeated: int = 0  # events that a reader got twice
    odd: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.stuck or self.missing or self.repeated or self.odd)

    def __str__(self) -> str:
        counted = {name: len(getattr(self, name)) for name in ("lost", "doubled", "stuck", "missing", "odd")}
        told = ", ".join(f"{name} {count}" for name, count in counted.items())
        samples = [f"{name}: {getattr(self, name)[:3]}" for name, count in counted.items() if count]
        return "\n".join([
            f"turns {self.turns} ({self.accepted} accepted), faults {sum(self.faults.values())}: {told}, "
            f"repeated {self.repeated}", f"faults {self.faults}", f"ends {self.ends}", *samples,
        ])


def judge(world: World, load: Load, faults: list[str]) -> Verdict:
    """Look for every turn and every character, ask every session once more, and let doctor look."""
    turns = [turn for turn in load.turns if turn.session not in load.deleted]
    verdict = Verdict(
        len(load.turns), sum(turn.accepted for turn in load.turns), dict(Counter(faults)),
        dict(Counter(str(turn.finish) for turn in turns)),
    )
    sessions = list(dict.fromkeys(turn.session for turn in turns))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda session: _ask_once_more(load, session, verdict), sessions))
    for session in sessions:
        stored = load.call("GET", f"/api/v1/chats/{load.chat_id}/sessions/{session}")
        for turn in turns:
            if turn.session == session:
                _look_for(turn, stored, verdict)
    doctor = json.loads(world.replicas[0].run("doctor", "--json", check=False))
    verdict.odd += [f"doctor: {finding}" for finding in doctor["findings"]]
    return verdict


def _ask_once_more(load: Load, session: str, verdict: Verdict) -> None:
    turn = Told("say more in 3 words", session)
    began = time.monotonic()
    load.ask(turn, NEXT_QUESTION)
    if turn.finish != "stop" or time.monotonic() - began > NEXT_QUESTION:
        verdict.stuck.append(f"{session} {turn.finish} {turn.odd[:2]}")


def _look_for(turn: Told, stored: Any, verdict: Verdict) -> None:
    verdict.repeated += turn.repeated
    verdict.odd += turn.odd
    entries = [entry for entry in stored["messages"] if entry.get("id") == turn.id]
    questions = [entry for entry in entries if entry["role"] == "user"]
    answers = [entry for entry in entries if entry["role"] == "assistant"]
    slots = [slot for slot in stored["reference"] if slot["message_id"] == turn.id]
    counts = (len(questions), len(answers), len(slots))
    if turn.accepted and 0 in counts:
        verdict.lost.append(f"{turn.id} {counts} {turn.finish}")
    elif max(counts) > 1:
        verdict.doubled.append(f"{turn.id} {counts}")
    elif turn.accepted:
        _compare(turn, answers[0], verdict)


def _compare(turn: Told, answer: Any, verdict: Verdict) -> None:
    text, finish = answer["content"], answer["finish_reason"]
    if not text.startswith(turn.seen):
        verdict.missing.append(f"{turn.id} saw {turn.seen[-40:]!r}, stored {finish} {text[-40:]!r}")
    elif not turn.whole.startswith(text) or (finish == "stop") != (text == turn.whole and finish == "stop"):
        verdict.odd.append(f"{turn.id} {finish} stored {text[-60:]!r}")
    elif turn.finish == "stop" and (finish != "stop" or turn.seen != turn.whole):
        verdict.odd.append(f"{turn.id} was told stop, stored {finish}, saw {turn.seen[-40:]!r}")
    elif turn.finish is None:
        verdict.odd.append(f"{turn.id} never came to its end; stored {finish}")
