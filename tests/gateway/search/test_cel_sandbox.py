"""CEL in processes of its own: values, refusals that name the expression, and nobody else harmed."""

import os
import re
import signal
import subprocess
import sys
import threading

import pytest
import tenacity

from gateway.ports.deadline import Deadline
from gateway.search.cel_sandbox import EXPRESSION_CHARACTERS_MAX, CelEvaluator, CelProcess, CelSandbox
from gateway.search.message_view import MessageView
from services.serving.calls.cancellation import Cancellation
from store.errors import DeadlineExceededError, InvalidArgumentError, ResourceBusyError, ServiceUnavailableError
from tests.support.waiting import WAIT_SECONDS_MAX

TEN = "[1,2,3,4,5,6,7,8,9,10]"
ENDLESS = "".join(f"{TEN}.all({name}, " for name in "abcdefghijkl") + "true" + ")" * 12
# 2^30 times the body.
ALLOCATING = "[message.body_text]" + ".map(x, x + x)" * 30 + ".size() > 0"
NO_MESSAGE_NEEDED = "['" + "a" * 1000 + "']" + ".map(x, x + x)" * 30 + ".size() > 0"
VIEW = MessageView(
    topic="t",
    queue_id=3,
    queue_offset=4,
    commit_log_offset=77,
    store_size_bytes=9,
    flag=1,
    sys_flag=2,
    born_time_millis=1_000_000_000_123,
    born_host="127.0.0.1:1",
    store_time_millis=1_000_000_000_456,
    store_host="127.0.0.1:2",
    reconsume_times=5,
    tags="a",
    keys=("k1", "k2"),
    unique_key="u",
    properties={"color": "red", "n": "7"},
    body=b"unused",
)


def evaluator(sandbox: CelSandbox, expression: str, **fields) -> CelEvaluator:
    arguments = {
        "time_is_over": lambda: False,
        "cancellation": Cancellation(),
        "deadline": Deadline.after(60),
        **fields,
    }
    return CelEvaluator(sandbox, expression, **arguments)


def value(sandbox: CelSandbox, expression: str, body: bytes = b"abc\xff") -> bool | str:
    (only,) = evaluator(sandbox, expression).evaluate([(VIEW, body)])
    return only


# On a starved machine the answer is that it was busy, and to try again: a test does what a caller does.
@tenacity.retry(
    retry=tenacity.retry_if_exception_type(ResourceBusyError), stop=tenacity.stop_after_attempt(4), reraise=True
)
def refusal(sandbox: CelSandbox, expression: str, body: bytes = b"") -> InvalidArgumentError:
    with pytest.raises(InvalidArgumentError) as refused:
        evaluator(sandbox, expression).evaluate([(VIEW, body)])
    assert refused.value.metadata["field"] == "cel"
    assert repr(expression[:20])[1:-1] in refused.value.message
    return refused.value


@pytest.mark.parametrize(
    "expression",
    [
        "message.topic == 't' && message.queue_id == 3 && message.queue_offset == 4",
        "message.commit_log_offset == 77 && message.store_size_bytes == 9 && message.flag == 1 && message.sys_flag == 2",
        "message.tags == 'a' && message.unique_key == 'u' && message.keys == ['k1', 'k2']",
        "message.properties.color == 'red' && int(message.properties['n']) == 7",
        "message.born_host == '127.0.0.1:1' && message.store_host == '127.0.0.1:2' && message.reconsume_times == 5",
        "message.born_time == timestamp('2001-09-09T01:46:40.123Z') && message.born_time_millis == 1000000000123",
        "message.store_time > timestamp('2001-09-09T01:46:40Z') && message.store_time_millis == 1000000000456",
        r"message.body == b'abc\xff' && size(message.body) == 4",
        "message.body_text == 'abc\ufffd' && message.body_text.matches('^a.c')",
        "has(message.properties.color) && !has(message.properties.size)",
        "message.keys.exists(key, key.startsWith('k')) && message.keys.all(k, k != '')",
        "'message.nonsense // foo' != \"it's\"  // message.comment",
    ],
)
def test_an_expression_sees_the_whole_message(sandbox, expression):
    assert value(sandbox, expression) is True
    assert value(sandbox, f"!({expression.split('  //')[0]})") is False


@pytest.mark.parametrize(
    ("expression", "line", "column"),
    [
        ("message.topic ==", 1, 17),
        ("message.topic == 't' &&\n  message.keyz == ['a']", 2, 11),
        ("message.topic == 't' &&\n foo", 2, 2),
        ("other.topic == 't'", 1, 1),
        ("message.keys.exists(k, k == other)", 1, 29),
        ("", 0, 0),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(sandbox, expression, line, column):
    metadata = refusal(sandbox, expression).metadata
    if line:
        assert (metadata["line"], metadata["column"]) == (str(line), str(column))


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("message.queue_id", "int"),
        ("message.topic", "str"),
        ("nothing(message.topic)", "nothing"),
        ("message.body.contains('a')", "contains"),
        ("(" * 1000 + "true" + ")" * 1000, "ecursion"),
    ],
)
def test_what_has_no_value_for_any_message_is_refused(sandbox, expression, word):
    assert word in refusal(sandbox, expression).message


def test_one_that_is_too_long_is_refused_before_it_is_sent():
    with pytest.raises(InvalidArgumentError, match=str(EXPRESSION_CHARACTERS_MAX)):
        evaluator(CelSandbox(0), " " * EXPRESSION_CHARACTERS_MAX + "true")


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("message.properties.size == '1'", "size"),
        ("message.keys[5] == 'a'", "5"),
        ("int(message.tags) == 1", "a"),
        ("1 / (message.queue_id - 3) == 1", "zero"),
    ],
)
def test_a_message_for_which_it_has_no_value_says_why(sandbox, expression, why):
    assert why in value(sandbox, expression)


@pytest.mark.parametrize(
    ("expression", "body", "what"),
    [
        (ENDLESS, b"", "does not end"),
        (NO_MESSAGE_NEEDED, b"", "memory|does not end"),
        (ALLOCATING, b"x" * (4 << 20), "memory|does not end"),
        (f"message.body_text == '' || {ENDLESS}", b"x", "does not end"),
    ],
)
def test_one_that_does_not_end_or_allocates_is_named_and_nobody_else_pays(expression, body, what, monkeypatch):
    # A busy machine takes longer for the second of a processor that ends it.
    monkeypatch.setattr("gateway.search.cel_sandbox.EVALUATION_SECONDS_MAX", WAIT_SECONDS_MAX)
    sandbox = CelSandbox(2)
    try:
        steady = evaluator(sandbox, "message.topic == 't'")
        error = refusal(sandbox, expression, body)
        assert re.search(what, error.message)  # a busy machine may take the second before the memory
        assert ("byte 77" in error.message) == bool(body)
        assert steady.evaluate([(VIEW, b"")] * 200) == [True] * 200
    finally:
        sandbox.close()


def test_a_program_is_kept_and_its_process_asked_again(sandbox):
    first = evaluator(sandbox, "message.topic == 't'")
    (process,) = sandbox._idle[-1:]
    with pytest.raises(InvalidArgumentError):
        evaluator(sandbox, "message.foo")
    assert first.evaluate([(VIEW, b"")]) == [True]
    assert sandbox._idle[-1].pid == process.pid, "a bad expression costs no process"


def test_a_process_that_has_died_idle_is_replaced():
    sandbox = CelSandbox(1)
    try:
        steady = evaluator(sandbox, "true")
        process = sandbox._idle[0]
        os.kill(process.pid, signal.SIGKILL)
        process._process.wait(WAIT_SECONDS_MAX)
        assert steady.evaluate([(VIEW, b"")]) == [True]
    finally:
        sandbox.close()


def test_a_cancel_ends_an_evaluation_that_goes_on(sandbox):
    """By order: the evaluation alone would be refused, and the call comes back without a refusal."""
    cancellation = Cancellation()
    asked = threading.Event()

    class Watched(CelProcess):
        def ask(self, expression, messages, seconds):
            super().ask(expression, messages, seconds)
            if messages:
                asked.set()

    own = CelSandbox(1, Watched)
    values = []
    try:
        slow = evaluator(own, f"message.body_text == '' || {ENDLESS}", cancellation=cancellation)
        thread = threading.Thread(target=lambda: values.append(slow.evaluate([(VIEW, b"x")] * 5)))
        thread.start()
        assert asked.wait(WAIT_SECONDS_MAX)
        cancellation.cancel()
        thread.join(WAIT_SECONDS_MAX)
        assert values == [[]]
        assert evaluator(own, "true").evaluate([(VIEW, b"")]) == [True]
    finally:
        own.close()


def test_a_deadline_ends_an_evaluation():
    own = CelSandbox(1)
    try:
        slow = evaluator(own, f"message.body_text == '' || {ENDLESS}")
        slow._deadline = Deadline.after(0.1)
        with pytest.raises(DeadlineExceededError):
            slow.evaluate([(VIEW, b"x")])
    finally:
        own.close()


def test_when_time_is_over_the_first_verdict_comes_all_the_same():
    own = CelSandbox(1)
    # Quick for the first message, endless for the second.
    expression = f"message.body_text != 'x' || {ENDLESS}"
    try:
        late = evaluator(own, expression, time_is_over=lambda: True)
        assert late.evaluate([(VIEW, b""), (VIEW, b"x")]) == [True]
    finally:
        own.close()


def test_a_quick_expression_lost_its_process_at_the_end_of_each_page_of_a_busy_machine():
    seconds = [0.0]

    class Starved(CelProcess):
        def read_line(self, seconds_max):
            seconds[0] += 0.05
            return super().read_line(seconds_max)

    own = CelSandbox(1, Starved)
    try:
        deadline = Deadline.after(60, lambda: seconds[0])
        late = evaluator(own, "true", time_is_over=lambda: True, deadline=deadline)
        process = own._idle[0]
        assert late.evaluate([(VIEW, b"")] * 10) == [True] * 10
        assert own._idle == [process]
    finally:
        own.close()


def test_values_that_are_there_are_told_before_a_near_deadline_passes():
    """The time to finish a batch was longer than what was left, and the page ended without its values and its token."""
    seconds = [0.0]

    class Slow(CelProcess):
        def read_line(self, seconds_max):
            seconds[0] += 0.09
            return super().read_line(seconds_max)

    own = CelSandbox(1, Slow)
    try:
        deadline = Deadline.after(0.5, lambda: seconds[0])
        late = evaluator(own, "true", time_is_over=lambda: True, deadline=deadline)
        values = late.evaluate([(VIEW, b"")] * 10)
        assert values == [True] * len(values)
        assert 0 < len(values) < 10
    finally:
        own.close()


def test_whoever_finds_all_busy_is_told_so(monkeypatch):
    monkeypatch.setattr("gateway.search.cel_sandbox.WAIT_SECONDS_MAX", 0.01)
    own = CelSandbox(1)
    lent = own.lend(Cancellation(), Deadline.after(60))
    try:
        with pytest.raises(ResourceBusyError):
            evaluator(own, "true")
    finally:
        own.take_back(lent, usable=True)
        assert evaluator(own, "true").evaluate([(VIEW, b"")]) == [True]
        own.close()


def test_an_expression_was_blamed_for_a_process_that_got_no_processor_time(monkeypatch):
    own = CelSandbox(1)
    try:
        starved = evaluator(own, "true")
        os.kill(own._idle[0].pid, signal.SIGSTOP)
        monkeypatch.setattr("gateway.search.cel_sandbox.EVALUATION_SECONDS_MAX", 0.05)
        with pytest.raises(ResourceBusyError, match="too little processor time: try again"):
            starved.evaluate([(VIEW, b"")])
        monkeypatch.undo()
        assert starved.evaluate([(VIEW, b"")]) == [True]
    finally:
        own.close()


def test_after_the_end_there_is_no_process(sandbox):
    own = CelSandbox(2)
    evaluator(own, "true")
    process = own._idle[0]
    own.close()
    assert not process.is_alive
    with pytest.raises(ServiceUnavailableError):
        evaluator(own, "true")


def test_one_that_does_not_start_is_told_apart_from_a_bad_expression(monkeypatch):
    monkeypatch.setattr("gateway.search.cel_sandbox.MODULE", "gateway.search.no_such_module")
    with pytest.raises(ServiceUnavailableError, match="did not start"):
        evaluator(CelSandbox(1), "true")


def test_the_process_can_open_nothing_and_leaves_with_its_gateway():
    script = """
import errno, socket, sys
from gateway.search.cel_worker import lock_down
lock_down()
for forbidden in (socket.socket, lambda: open("/etc/hostname"), lambda: bytearray(1 << 30)):
    try:
        forbidden()
    except OSError as error:
        print(errno.errorcode[error.errno])
    except MemoryError:
        print("MEMORY")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["EMFILE", "EMFILE", "MEMORY"]
    process = CelProcess()
    process._socket.close()
    assert process._process.wait(WAIT_SECONDS_MAX) == 0
