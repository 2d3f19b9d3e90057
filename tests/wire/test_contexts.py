import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from speechframe.spec.chosen import MAX_GENERATION_REQUESTS_PER_S
from speechframe.spec.codes import CloseCode, ErrorCode, WarningCode
from speechframe.spec.limits import BUFFER_DELAY_MS, SOCKET_IDLE_S
from speechframe.spec.socket import AudioFrame, ErrorFrame, FinalFrame, WarningFrame
from speechframe.wire.contexts import Contexts
from speechframe.wire.turns import Cancel, Close, Finish, Generate, Send, TurnSlots

NORA = {"voiceId": "nora"}
W = WarningCode


class Socket:
    """One socket whose chunks are synthesised when the test says so; audio is the text itself."""

    def __init__(self, cap=3, slots=None, **options):
        self.slots = slots or TurnSlots(cap)
        self.now_s = 100.0
        self.contexts = Contexts(self.slots, now_s=self.now_s, trace_id="t", **options)
        self.sent, self.chunks, self.at_work, self.finishing, self.cancelled = [], [], [], [], []
        self.closed = None

    def take(self, actions):
        for action in actions:
            match action:
                case Send(frame):
                    self.sent.append(frame)
                case Generate():
                    self.chunks.append(action)
                    self.at_work.append(action)
                case Finish(turn):
                    self.finishing.append(turn)
                case Cancel(generation):
                    self.cancelled.append(generation)
                    self.at_work = [one for one in self.at_work if one.generation != generation]
                case Close(code):
                    self.closed = code
        return actions

    def say(self, **fields):
        return self.take(self.contexts.receive(json.dumps(fields), now_s=self.now_s))

    def wait(self, seconds):
        self.now_s += seconds
        return self.take(self.contexts.take_due_actions(now_s=self.now_s))

    def work(self, index=0):
        one = self.at_work.pop(index)
        self.take(self.contexts.send_audio(one.generation, one.text.encode(), now_s=self.now_s))
        self.take(self.contexts.finish_chunk(one.generation, now_s=self.now_s))

    def finish(self, index=0):
        self.take(self.contexts.finish_turn(self.finishing.pop(index), b"|", now_s=self.now_s))

    def work_all(self):
        while self.at_work or self.finishing:
            self.work() if self.at_work else self.finish()

    def codes(self):
        return [
            getattr(one, "warning_code", None) or one.error_code
            for one in self.sent
            if isinstance(one, WarningFrame | ErrorFrame)
        ]

    def heard(self, context_id=None):
        """What came for a context: its audio joined, and in brackets what else."""
        marks = {FinalFrame: "<final>", ErrorFrame: "<error>", WarningFrame: ""}
        return "".join(
            bytes.fromhex(found.hex()).decode() if (found := decoded(one)) is not None else marks[type(one)]
            for one in self.sent
            if one.context_id == context_id
        )


def decoded(frame):
    from base64 import b64decode

    return b64decode(frame.audio) if isinstance(frame, AudioFrame) else None


@pytest.mark.rule("context.created-within-limit", "context.refused-over-limit", "socket.error-context-limit")
def test_contexts_are_made_up_to_the_cap_and_one_more_is_refused_and_harms_nobody():
    socket = Socket(cap=2)
    for name in "abc":
        socket.say(context_id=name, voice_config=NORA, text="Hi. ")
    assert (socket.contexts.active_contexts, socket.slots.active) == (2, 2)
    (error,) = [one for one in socket.sent if isinstance(one, ErrorFrame)]
    assert (error.error_code, error.context_id, error.fatal) == (
        ErrorCode.ACTIVE_CONTEXT_LIMIT_EXCEEDED,
        "c",
        False,
    )
    socket.say(context_id="a", end=True)
    socket.say(context_id="b", end=True)
    socket.work_all()
    assert (socket.heard("a"), socket.heard("b"), socket.heard("c")) == (
        "Hi. |<final>",
        "Hi. |<final>",
        "<error>",
    )


@pytest.mark.rule("context.id-reused")
def test_the_next_turn_of_an_id_waits_for_the_final_frame_of_the_one_before():
    socket = Socket()
    socket.say(context_id="a", voice_config=NORA, text="One.", end=True)
    socket.say(context_id="a", voice_config={"voiceId": "jack"}, text="Two.", end=True)
    assert [chunk.text for chunk in socket.at_work] == ["One."]
    socket.work_all()
    assert socket.heard("a") == "One.|<final>Two.|<final>"
    assert [chunk.voice_config.voice_id for chunk in socket.chunks] == ["nora", "jack"]
    assert len({chunk.turn for chunk in socket.chunks}) == 2


@pytest.mark.rule("socket.warn-no-voice-id", "context.warning-continues", "socket.warning-frame")
def test_a_config_without_a_voice_is_a_warning_and_the_default_voice_speaks():
    socket = Socket()
    socket.say(context_id="a", voice_config={"rate": 5}, text="Hi", end=True)
    socket.work_all()
    assert socket.codes() == [W.NO_VOICE_ID]
    assert socket.chunks[0].voice_config.rate == 5
    assert socket.heard("a") == "Hi|<final>"


@pytest.mark.rule(
    "socket.error-invalid-voice", "context.fatal-ends", "socket.fatal-is-last", "socket.error-frame"
)
def test_an_unknown_voice_is_fatal_to_its_context_until_it_is_named_anew():
    socket = Socket(voice_problem=lambda config: None if config.voice_id == "nora" else "no such voice")
    socket.say(context_id="a", voice_config={"voiceId": "nobody"}, text="One. ")
    socket.say(context_id="a", text="Two. ")
    assert (socket.slots.active, socket.codes(), socket.sent[-1].fatal) == (
        0,
        [ErrorCode.INVALID_VOICE],
        True,
    )
    socket.say(context_id="a", voice_config=NORA, text="Three.", end=True)
    socket.work_all()
    assert socket.heard("a") == "<error>Three.|<final>"


def test_an_unknown_voice_of_the_next_turn_is_told_behind_the_final_frame_of_the_one_before():
    socket = Socket(voice_problem=lambda config: None if config.voice_id == "nora" else "no such voice")
    socket.say(context_id="a", voice_config=NORA, text="One.", end=True)
    socket.say(context_id="a", voice_config={"voiceId": "nobody"}, text="Two.", end=True)
    assert socket.codes() == []
    socket.work_all()
    assert socket.heard("a") == "One.|<final><error>"


@pytest.mark.rule("socket.error-internal", "socket.fatal-is-last")
def test_after_an_internal_error_nothing_follows_and_the_slot_is_free():
    socket = Socket(cap=1)
    socket.say(context_id="a", voice_config=NORA, text="One. Two. Three. " * 5)
    (chunk,) = socket.at_work
    socket.take(socket.contexts.fail_turn(chunk.turn, "the worker died", now_s=socket.now_s))
    assert socket.cancelled == [chunk.generation]
    assert socket.contexts.send_audio(chunk.generation, b"late", now_s=socket.now_s) == []
    assert socket.contexts.finish_chunk(chunk.generation, now_s=socket.now_s) == []
    socket.say(context_id="a", text="Sent before the error was read.")
    socket.say(context_id="a", end=True)
    socket.wait(5)
    assert (socket.heard("a"), socket.slots.active, socket.at_work) == ("<error>", 0, [])
    socket.say(context_id="a", text="A new turn.", end=True)
    socket.work_all()
    assert socket.heard("a") == "<error>A new turn.|<final>"


@pytest.mark.rule("socket.clear-without-text", "socket.warn-text-with-clear")
def test_clear_drops_what_waits_and_what_is_being_spoken_goes_on():
    socket = Socket()
    socket.say(context_id="a", voice_config=NORA, min_buffer_size=0, text="One. Two. Three. Fo")
    socket.say(context_id="a", clear=True, text="Five. ")
    socket.say(context_id="a", text="Six.", end=True)
    socket.work_all()
    assert socket.heard("a") == "One. Six.|<final>"
    assert socket.codes() == [W.TEXT_IGNORED_WITH_CLEAR]


def test_text_is_gathered_by_size_and_waits_no_longer_than_the_delay():
    socket = Socket()
    socket.say(context_id="a", voice_config=NORA, text="Short. Yes")
    assert socket.at_work == []
    assert socket.contexts.due_s == pytest.approx(socket.now_s + BUFFER_DELAY_MS.default / 1000)
    socket.wait(BUFFER_DELAY_MS.default / 2000)
    socket.say(context_id="a", text=", more")
    socket.wait(BUFFER_DELAY_MS.default / 2000)
    assert [chunk.text for chunk in socket.at_work] == ["Short. Yes, more"]
    assert socket.contexts.due_s is None


def test_a_delay_of_nothing_waits_for_nothing_but_the_rest_of_a_pause_marker():
    socket = Socket()
    socket.say(context_id="a", voice_config=NORA, max_buffer_delay_in_ms=0, text="One [pause")
    assert [chunk.text for chunk in socket.at_work] == ["One "]
    socket.wait(0.01)
    socket.say(context_id="a", text=" 1s] two", end=True)
    socket.work_all()
    assert [chunk.text for chunk in socket.chunks] == ["One ", "[pause 1s] two"]


@pytest.mark.rule(
    "socket.warn-buffer-size",
    "socket.warn-buffer-delay",
    "socket.warn-predictive-chunking",
    "socket.predictive-chunking",
)
def test_what_is_wrong_in_a_setting_keeps_the_value_before():
    socket = Socket()
    socket.say(
        context_id="a",
        voice_config=NORA,
        min_buffer_size="0",
        max_buffer_delay_in_ms=700,
        predictive_chunking="lenient",
    )
    socket.say(
        context_id="a",
        min_buffer_size=1001,
        max_buffer_delay_in_ms=-1,
        predictive_chunking="loose",
        text="One, two",
    )
    assert socket.codes() == [W.INVALID_BUFFER_SIZE, W.INVALID_BUFFER_DELAY, W.INVALID_PREDICTIVE_CHUNKING]
    assert [chunk.text for chunk in socket.at_work] == ["One, "]
    assert socket.contexts.due_s == pytest.approx(socket.now_s + 0.7)


def test_settings_without_an_id_are_the_sockets_and_make_no_context():
    socket = Socket(cap=1)
    socket.say(min_buffer_size=0, predictive_chunking="lenient")
    assert socket.slots.active == 0
    socket.say(context_id="a", voice_config=NORA, text="One, two", end=True)
    socket.say(context_id="b", voice_config=NORA, min_buffer_size=500, text="One, two", end=True)
    assert [chunk.text for chunk in socket.at_work] == ["One, ", "One, two"]


@pytest.mark.rule("socket.warn-too-many-requests", "context.warning-continues")
def test_too_many_requests_a_second_are_a_warning_a_second_and_all_is_spoken():
    socket = Socket()
    socket.say(context_id="a", voice_config=NORA, min_buffer_size=0)
    for _ in range(4 * MAX_GENERATION_REQUESTS_PER_S):
        socket.say(context_id="a", text="One. Two. T")
    assert socket.codes() == [W.TOO_MANY_GENERATION_REQUESTS]
    socket.wait(2)
    socket.say(context_id="a", text="! " * 3 + "One. " * 50, end=True)
    assert socket.codes() == [W.TOO_MANY_GENERATION_REQUESTS]
    socket.work_all()
    assert socket.heard("a").count("Two. ") == 4 * MAX_GENERATION_REQUESTS_PER_S


@pytest.mark.rule("socket.close-1000-idle")
def test_a_socket_without_traffic_is_closed_and_its_slots_are_free():
    socket = Socket()
    socket.say(context_id="a", voice_config=NORA, text="One", max_buffer_delay_in_ms=1)
    socket.wait(SOCKET_IDLE_S - 1)
    socket.wait(2)
    assert (socket.closed, socket.slots.active) == (None, 1)  # audio is still being made
    socket.work()
    assert socket.contexts.due_s == pytest.approx(socket.now_s + SOCKET_IDLE_S)
    socket.wait(SOCKET_IDLE_S)
    assert (socket.closed, socket.slots.active, socket.contexts.due_s) == (CloseCode.NORMAL, 0, None)
    assert socket.say(context_id="b", text="late") == []


class ServiceMachine(RuleBasedStateMachine):
    """Whatever is said, made and broken in whatever order."""

    CAP = 2
    ids = st.sampled_from([None, "a", "b", "c"])
    texts = st.text("ab. ,!?\n[pause1s]", min_size=1, max_size=30)

    def __init__(self):
        super().__init__()
        self.slots = TurnSlots(self.CAP)
        self.socket = Socket(slots=self.slots)
        self.said = {}  # of each id: characters of the turns that are not over, that were not cleared
        self.heard = {}

    def say(self, **fields):
        before, count = self.socket.contexts.active_contexts, len(self.socket.sent)
        self.socket.say(**{name: value for name, value in fields.items() if value is not None})
        refused = any(isinstance(one, ErrorFrame) for one in self.socket.sent[count:])
        assert not refused or before == self.CAP
        return not refused

    @rule(
        key=ids, text=texts, end=st.booleans(), size=st.sampled_from([None, 0, 5, 1000]), config=st.booleans()
    )
    def text(self, key, text, end, size, config):
        failed = key in self.socket.contexts._failed and not config
        fields = {
            "context_id": key,
            "text": text,
            "end": end,
            "min_buffer_size": size,
            "voice_config": NORA if config else None,
        }
        if self.say(**fields) and not failed:
            self.said[key] = self.said.get(key, "") + text

    @rule(key=ids)
    def end(self, key):
        self.say(context_id=key, end=True)

    @rule(key=ids)
    def clear(self, key):
        self.say(context_id=key, clear=True)
        at_work = "".join(one.text for one in self.socket.at_work if one.context_id == key)
        self.said[key] = self.audio(key) + at_work

    @rule(seconds=st.sampled_from([0.01, 0.2, 0.31, 2]))
    def wait(self, seconds):
        self.socket.wait(seconds)

    @precondition(lambda self: self.socket.at_work)
    @rule(data=st.data())
    def work(self, data):
        self.socket.work(data.draw(st.integers(0, len(self.socket.at_work) - 1)))

    @precondition(lambda self: self.socket.finishing)
    @rule(data=st.data())
    def finish(self, data):
        self.socket.finish(data.draw(st.integers(0, len(self.socket.finishing) - 1)))

    @precondition(lambda self: self.socket.at_work)
    @rule(data=st.data())
    def fail(self, data):
        one = data.draw(st.sampled_from(self.socket.at_work))
        self.socket.take(self.socket.contexts.fail_turn(one.turn, "broken", now_s=self.socket.now_s))
        self.said[one.context_id] = self.audio(one.context_id)

    def audio(self, key):
        frames = (decoded(one) for one in self.socket.sent if one.context_id == key)
        return "".join(one.decode() for one in frames if one not in {None, b"|"})

    @invariant()
    def no_more_contexts_are_active_than_the_cap_and_each_holds_one_slot(self):
        assert self.slots.active == self.socket.contexts.active_contexts <= self.CAP

    @invariant()
    def one_chunk_of_an_id_is_being_made_at_a_time(self):
        ids = [one.context_id for one in self.socket.at_work]
        assert len(ids) == len(set(ids))

    @invariant()
    def what_is_heard_is_the_beginning_of_what_was_said_and_nothing_twice(self):
        for key, said in self.said.items():
            assert squeezed(said).startswith(squeezed(self.audio(key)))

    @invariant()
    def a_turn_ends_once_with_its_last_frame(self):
        over, notices = set(), (WarningFrame,)
        for frame in self.socket.sent:
            if isinstance(frame, notices) or frame.trace_id == "t":
                continue
            assert frame.trace_id not in over
            if isinstance(frame, FinalFrame) or getattr(frame, "fatal", False):
                over.add(frame.trace_id)

    def teardown(self):
        for key in (None, "a", "b", "c"):
            self.say(context_id=key, end=True)
        self.socket.work_all()
        for key, said in self.said.items():
            assert squeezed(self.audio(key)) == squeezed(said)
        assert self.slots.active == 0
        assert self.socket.contexts._turns == {}
        assert self.socket.contexts.backlog_characters == 0


def squeezed(text):
    # Blanks alone are not spoken.
    return "".join(text.split())


TestService = ServiceMachine.TestCase
TestService.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
