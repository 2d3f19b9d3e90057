import json
import timeit

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import ValidationError

from speechframe.spec.chosen import MAX_FRAME_BYTES
from speechframe.spec.codes import CloseCode
from speechframe.spec.socket import VoiceConfig
from speechframe.wire.client_contexts import (
    ClientContexts,
    TurnAudio,
    TurnEnded,
    TurnFailed,
    TurnRetried,
    UnexpectedMessage,
    WarningReceived,
)
from speechframe.wire.contexts import Contexts
from speechframe.wire.frames import encode_frame
from speechframe.wire.turns import Cancel, Finish, Generate, Send, TurnSlots

NORA = VoiceConfig(voice_id="nora")


def client(cap=2, **options):
    contexts = ClientContexts(TurnSlots(cap), **options)
    contexts.record_connection()
    return contexts


def sent(contexts, now_s=0.0):
    return [json.loads(encode_frame(frame)) for frame in contexts.take_frames(now_s=now_s)]


def got(contexts, now_s=0.0, **fields):
    return contexts.receive(json.dumps(fields), now_s=now_s)


def one_heard(**options):
    """Return contexts with one turn, of which something was heard."""
    contexts = client(**options)
    turn = contexts.open(NORA)
    contexts.send(turn, "One. ")
    sent(contexts)
    got(contexts, audio="AAE=", context_id="1.1")
    return contexts, turn


@pytest.mark.parametrize(
    ("texts", "cleared", "kind"),
    [
        (["Hi."], False, TurnFailed),
        (["Hi."], True, TurnEnded),
        ([" \n"], False, TurnEnded),
        (["👍", "…"], False, TurnEnded),
        # A marker may come in pieces.
        (["[pau", "se 1", "s]", "."], False, TurnEnded),
        (["[pause 1s] 7"], False, TurnFailed),
        (["Да."], False, TurnFailed),
    ],
)
def test_a_turn_without_audio_has_failed_unless_there_was_nothing_to_pronounce(texts, cleared, kind):
    contexts = client()
    turn = contexts.open(NORA)
    for text in texts:
        contexts.send(turn, text)
    sent(contexts)
    if cleared:
        contexts.clear(turn)
    contexts.end(turn)
    sent(contexts)
    (event,) = got(contexts, final=True, context_id="1.1")
    assert isinstance(event, kind)
    assert sent(contexts) == []
    assert contexts.open_turns == ()


def test_a_turn_without_audio_says_what_the_service_warned_of_last():
    contexts = client()
    turn = contexts.open(NORA)
    contexts.send(turn, "Hi.")
    contexts.end(turn)
    sent(contexts)
    got(contexts, warning="first", warning_code="NEW", context_id="1.1")
    got(contexts, warning="of nobody", warning_code="NEW")
    assert got(contexts, error="", error_code="INTERNAL_ERROR", context_id="1.1") == [
        TurnRetried(turn, "INTERNAL_ERROR")
    ]
    sent(contexts)
    for warning in ("second", "third"):
        got(contexts, warning=warning, warning_code="NEW", context_id="1.2")
    words = "the answer holds no audio; the service warned: NEW: third"
    assert got(contexts, final=True, context_id="1.2") == [TurnFailed(turn, None, words, is_bad=True)]
    contexts.send(contexts.open(NORA), "Hi.")
    contexts.end(2)
    sent(contexts)
    assert got(contexts, final=True, context_id="2.1")[0].message == "the answer holds no audio"


def test_a_long_text_goes_in_frames_that_a_service_takes():
    contexts, text = client(), "\x01 goes on. \U0001f600" * 10_000
    turn = contexts.open(NORA)
    contexts.send(turn, text)
    contexts.end(turn)
    frames = [encode_frame(frame) for frame in contexts.take_frames(now_s=0.0)]
    assert max(len(frame.encode()) for frame in frames) <= MAX_FRAME_BYTES
    assert "".join(json.loads(frame).get("text", "") for frame in frames) == text


def test_a_refused_turn_is_tried_again_after_a_moment_and_given_up_after_a_while():
    contexts = client(patience_s=10)
    turn = contexts.open(NORA)
    contexts.send(turn, "one")
    now_s, tries = 0.0, 0
    while contexts.open_turns and tries < 100 and now_s < 20:
        frames = sent(contexts, now_s)
        if any("text" in frame for frame in frames):
            tries += 1
            events = got(
                contexts,
                now_s,
                error="",
                error_code="ACTIVE_CONTEXT_LIMIT_EXCEEDED",
                context_id=frames[-1]["context_id"],
            )
        now_s += 0.01
    assert events == [TurnFailed(turn, "ACTIVE_CONTEXT_LIMIT_EXCEEDED", "")]
    assert 4 < tries < 20


def test_a_close_before_anything_was_sent_is_no_attempt():
    contexts = client(max_attempts=1)
    turn, idle = contexts.open(NORA), contexts.open(NORA)
    contexts.send(turn, "One. ")
    for _ in range(5):
        assert contexts.record_disconnection(CloseCode.NORMAL) == []
        contexts.record_connection()
    sent(contexts)
    contexts.clear(turn)
    sent(contexts)
    # Of what was cleared nobody waits for anything.
    assert contexts.record_disconnection(CloseCode.NORMAL) == []
    assert contexts.open_turns == (turn, idle)


@pytest.mark.rule("socket.close-1000-idle")
@pytest.mark.parametrize("code", [CloseCode.NORMAL, None])
def test_a_turn_whose_connection_is_closed_has_failed_where_it_was_heard_and_is_sent_again_elsewhere(code):
    contexts, turn = one_heard()
    other = contexts.open(NORA)
    contexts.send(other, "Two. ")
    sent(contexts)
    failed, retried = contexts.record_disconnection(code)
    assert (failed.turn, type(failed), retried) == (turn, TurnFailed, TurnRetried(other, None))
    assert (contexts.open_turns, contexts.needs_connection) == ((other,), True)
    contexts.record_connection()
    assert [frame.get("text") for frame in sent(contexts)] == [None, "Two. "]


def test_refusals_are_none_of_the_attempts():
    contexts = client(max_attempts=2)
    turn = contexts.open(NORA)
    contexts.send(turn, "One. ")
    for attempt in range(1, 6):
        sent(contexts, now_s=10 * attempt)
        error = {"error": "", "error_code": "ACTIVE_CONTEXT_LIMIT_EXCEEDED"}
        got(contexts, now_s=10 * attempt, **error, context_id=f"1.{attempt}")
    sent(contexts, now_s=60)
    assert contexts.record_disconnection(None) == [TurnRetried(turn, None)]


@pytest.mark.parametrize("text", ["Half an emoji: \ud83d", "a\0b"])
def test_text_that_cannot_be_sent_is_refused_where_it_comes_in_and_stops_nobody(text):
    contexts = client()
    turn, other = contexts.open(NORA), contexts.open(NORA)
    contexts.send(turn, "One. ")
    with pytest.raises(ValidationError):
        contexts.send(turn, text)
    contexts.send(other, "Two. ")
    assert [frame.get("text") for frame in sent(contexts)] == [None, "One. ", None, "Two. "]


def test_a_piece_costs_the_same_however_many_were_sent_before_it():
    contexts = client()
    turn = contexts.open(NORA)
    costs_s = []
    for pieces in (1, 20_000):
        for _ in range(pieces):
            contexts.send(turn, "a ")
        sent(contexts)
        costs_s.append(min(timeit.repeat(lambda: contexts._turns[turn].has_text, number=1, repeat=50)))
    assert costs_s[1] < 10 * costs_s[0]


def test_what_is_given_up_between_two_frames_is_sent_no_further_and_holds_no_slot():
    slots = TurnSlots(2)
    contexts = ClientContexts(slots)
    contexts.record_connection()
    for text in ("One.", "Two.", "Three."):
        contexts.send(contexts.open(NORA), text)
    frames = contexts.take_frames(now_s=0)
    assert next(frames).context_id == "1.1"
    contexts.abandon_turn(1)
    contexts.abandon_turn(2)
    assert [frame.context_id for frame in frames] == ["3.1", "3.1"]
    assert [frame.context_id for frame in contexts.take_frames(now_s=0)] == ["1.1", "1.1"]
    assert slots.active == 1


def test_a_connection_that_is_lost_between_two_frames_is_sent_no_further():
    contexts = client()
    for text in ("One.", "Two."):
        contexts.send(contexts.open(NORA), text)
    frames = contexts.take_frames(now_s=0)
    next(frames)
    assert contexts.record_disconnection(None) == [TurnRetried(1, None)]
    assert list(frames) == []


HEARD = TurnAudio(1, b"\0\1")


@pytest.mark.parametrize(
    ("beside", "events"),
    [
        ({"error": "", "error_code": "", "warning": "", "warning_code": "", "fatal": False}, [HEARD]),
        ({"warning": "w", "warning_code": "NEW"}, [WarningReceived(1, "NEW", "w"), HEARD]),
        ({"warning": "w", "final": True}, [WarningReceived(1, "", "w"), HEARD, TurnEnded(1)]),
        (
            {"error": "e", "error_code": "NEW"},
            [UnexpectedMessage(1, "an error that is not fatal: NEW e"), HEARD],
        ),
        # It is sent again, or there is an end to it: nobody waits for this piece any more.
        ({"error": "e", "error_code": "INTERNAL_ERROR"}, [TurnRetried(1, "INTERNAL_ERROR")]),
        ({"error": "e", "error_code": "NEW", "fatal": True, "final": True}, [TurnFailed(1, "NEW", "e")]),
        ({"error": "", "error_code": "", "final": True}, [HEARD, TurnEnded(1)]),
    ],
)
def test_audio_is_heard_whatever_else_is_in_its_frame(beside, events):
    contexts = client()
    turn = contexts.open(NORA)
    contexts.send(turn, "One.")
    contexts.end(turn)
    sent(contexts)
    assert got(contexts, audio="AAE=", context_id="1.1", **beside) == events


@pytest.mark.parametrize(
    ("error", "event"),
    [
        ({"error": "e", "error_code": "NEW"}, TurnFailed(1, "NEW", "e")),
        ({"error": "", "error_code": "NEW", "fatal": False}, TurnFailed(1, "NEW", "")),
        ({"error": "e", "error_code": "INTERNAL_ERROR"}, TurnFailed(1, "INTERNAL_ERROR", "e")),
    ],
)
def test_a_final_frame_with_an_error_fails_its_turn(error, event):
    contexts, turn = one_heard()
    contexts.end(turn)
    sent(contexts)
    assert got(contexts, final=True, audio="AAE=", **error, context_id="1.1") == [event]
    assert contexts.open_turns == ()


@pytest.mark.rule("socket.close-1008")
def test_a_bad_key_fails_every_turn():
    contexts = client()
    turns = [contexts.open(NORA) for _ in range(3)]
    contexts.send(turns[0], "One.")
    sent(contexts)
    assert [event.turn for event in contexts.record_disconnection(CloseCode.POLICY_VIOLATION)] == turns
    assert not contexts.needs_connection


def test_a_turn_that_is_abandoned_is_cleared_and_ended_and_no_longer_heard():
    contexts = client(cap=1)
    turn, other = contexts.open(NORA), contexts.open(NORA)
    contexts.send(turn, "One.")
    contexts.send(other, "Two.")
    sent(contexts)
    contexts.abandon_turn(turn)
    frames = sent(contexts)
    assert frames[:2] == [{"clear": True, "context_id": "1.1"}, {"end": True, "context_id": "1.1"}]
    assert [frame["context_id"] for frame in frames[2:]] == ["2.1", "2.1"]
    # What was under way still comes, and is no oddity; behind its end nothing should.
    for late in ({"audio": "AAE="}, {"warning": "w", "warning_code": "NEW"}, {"final": True}):
        assert got(contexts, **late, context_id="1.1") == []
    assert isinstance(got(contexts, audio="AAE=", context_id="1.1")[0], UnexpectedMessage)


def test_a_turn_that_was_ended_and_cleared_before_it_began_is_over():
    contexts = client()
    turn = contexts.open(NORA)
    contexts.send(turn, "One.")
    contexts.end(turn)
    assert contexts.clear(turn) == [TurnEnded(turn)]
    assert (sent(contexts), contexts.open_turns) == ([], ())


@pytest.mark.parametrize(
    ("code", "ended"), [("INTERNAL_ERROR", True), ("ACTIVE_CONTEXT_LIMIT_EXCEEDED", False)]
)
def test_a_turn_that_fails_when_all_of_it_was_cleared_has_nothing_to_send_again(code, ended):
    contexts = client()
    turn = contexts.open(NORA)
    contexts.send(turn, "One.")
    sent(contexts)
    contexts.clear(turn)
    events = contexts.end(turn) if ended else []
    sent(contexts)
    events += got(contexts, error="", error_code=code, context_id="1.1")
    assert not any("text" in frame for frame in sent(contexts, now_s=60))
    events += contexts.end(turn)
    assert (events, contexts.open_turns) == ([TurnEnded(turn)], ())


class BothEnds(RuleBasedStateMachine):
    """A client and a service that allows it fewer contexts than it thinks, over connections that break."""

    def __init__(self):
        super().__init__()
        self.now_s = 0.0
        self.client_slots, self.service_slots = TurnSlots(3), TurnSlots(2)
        self.client = ClientContexts(self.client_slots, max_attempts=10_000, patience_s=10_000)
        self.service = None
        self.at_work, self.finishing = [], []
        self.to_client = []
        self.said, self.heard, self.over = {}, {}, {}
        self.cleared = set()

    def take(self, actions):
        for action in actions:
            match action:
                case Send(frame):
                    self.to_client.append(encode_frame(frame))
                case Generate():
                    self.at_work.append(action)
                case Finish(turn):
                    self.finishing.append(turn)
                case Cancel(generation):
                    self.at_work = [one for one in self.at_work if one.generation != generation]

    def note(self, events):
        for event in events:
            match event:
                case TurnAudio(turn, audio):
                    assert turn not in self.over
                    self.heard[turn] = self.heard.get(turn, "") + audio.decode()
                case TurnEnded(turn) | TurnFailed(turn):
                    assert turn not in self.over
                    self.over[turn] = event

    @rule()
    def open(self):
        self.said[self.client.open(NORA, {"min_buffer_size": 0})] = ""

    @precondition(lambda self: self.said)
    @rule(data=st.data(), text=st.text("ab. ", min_size=1, max_size=12), end=st.booleans())
    def speak(self, data, text, end):
        turn = data.draw(st.sampled_from(sorted(self.said)))
        if turn in self.client._turns and not self.client._turns[turn].ended:
            self.said[turn] += text
        self.client.send(turn, text)
        if end:
            self.note(self.client.end(turn))

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def clear(self, data):
        turn = data.draw(st.sampled_from(sorted(self.said)))
        self.cleared.add(turn)
        self.note(self.client.clear(turn))

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def abandon_turn(self, data):
        turn = data.draw(st.sampled_from(sorted(self.said)))
        self.client.abandon_turn(turn)
        self.over.setdefault(turn, None)

    @rule()
    def connect_and_send(self):
        if self.service is None and self.client.needs_connection:
            self.service = Contexts(self.service_slots, now_s=self.now_s, trace_id="t")
            self.client.record_connection()
        for frame in self.client.take_frames(now_s=self.now_s):
            self.take(self.service.receive(encode_frame(frame), now_s=self.now_s))

    @rule()
    def deliver(self):
        for message in self.to_client:
            self.note(self.client.receive(message, now_s=self.now_s))
        self.to_client = []

    @rule(seconds=st.sampled_from([0.1, 0.4, 3]))
    def wait(self, seconds):
        self.now_s += seconds
        if self.service is not None:
            self.take(self.service.take_due_actions(now_s=self.now_s))

    @rule()
    def work(self):
        if self.at_work:
            one = self.at_work.pop(0)
            self.take(self.service.send_audio(one.generation, one.text.encode(), now_s=self.now_s))
            self.take(self.service.finish_chunk(one.generation, now_s=self.now_s))
        elif self.finishing:
            self.take(self.service.finish_turn(self.finishing.pop(0), b"", now_s=self.now_s))

    @precondition(lambda self: self.at_work)
    @rule()
    def fail(self):
        self.take(self.service.fail_turn(self.at_work[0].turn, "broken", now_s=self.now_s))

    @precondition(lambda self: self.service is not None)
    @rule()
    def disconnect(self):
        self.deliver()
        self.service.close()
        self.service, self.at_work, self.finishing = None, [], []
        self.note(self.client.record_disconnection(None))

    @invariant()
    def slots_are_never_taken_beyond_the_cap_or_given_back_twice(self):
        assert 0 <= self.client_slots.active <= 3
        assert 0 <= self.service_slots.active <= 2

    @invariant()
    def what_is_heard_was_said_in_that_order_and_once(self):
        for turn, heard in self.heard.items():
            assert turn in self.cleared or squeezed(self.said[turn]).startswith(squeezed(heard))

    def teardown(self):
        for turn in list(self.said):
            self.note(self.client.end(turn))
        for _ in range(400):
            if not self.client.open_turns and self.client_slots.active == 0:
                break
            self.connect_and_send()
            self.wait(0.4)
            self.work()
            self.deliver()
        assert self.client.open_turns == ()
        self.connect_and_send() if self.service else None
        assert self.client_slots.active == 0
        assert set(self.over) == set(self.said)
        for turn, event in self.over.items():
            if isinstance(event, TurnEnded) and turn not in self.cleared:
                assert squeezed(self.heard.get(turn, "")) == squeezed(self.said[turn])


def squeezed(text):
    return "".join(text.split())


TestBothEnds = BothEnds.TestCase
TestBothEnds.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
