"""How many messages are fetched ahead of a program."""

import contextvars

from reput_client.consuming.pace import AHEAD_COUNT_MAX, QUICK_COUNT_MIN, QUICK_SECONDS, Pace


class Program:
    """Asks for messages, and gets each at once."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.now = 100.0
        self.pace.asked(self.now)

    def handle(self, seconds: float, count: int = 1) -> int:
        """Handle messages, each for so long; how many are fetched ahead then."""
        for _ in range(count):
            self.pace.given(self.now)
            self.now += seconds
            self.pace.asked(self.now)
        return self.pace.ahead_count


def test_nothing_is_fetched_ahead_of_a_program_that_takes_its_time() -> None:
    program = Program(Pace())
    assert program.handle(2 * QUICK_SECONDS, 1_000) == 0
    assert program.handle(0.0, QUICK_COUNT_MIN - 1) == 0, "a few quick ones say nothing"


def test_messages_are_fetched_ahead_of_a_quick_program_until_it_slows_down() -> None:
    program = Program(Pace())
    assert 0 < program.handle(0.001, QUICK_COUNT_MIN) < AHEAD_COUNT_MAX
    assert program.handle(0.001, 100) == AHEAD_COUNT_MAX
    assert program.handle(1.0, 2) == 0


def test_a_program_that_asks_again_and_again_for_a_message_that_does_not_come_is_not_quick() -> None:
    program = Program(Pace())
    program.handle(0.001, QUICK_COUNT_MIN - 1)
    for _ in range(100):
        program.pace.asked(program.now)
    assert program.pace.ahead_count == 0


def test_the_settings_limit_what_is_fetched_ahead() -> None:
    assert Program(Pace(0)).handle(0.0, 1_000) == 0
    assert Program(Pace(10)).handle(0.0, 1_000) == 10


def test_slow_handlers_that_began_together_are_no_quick_program() -> None:
    pace = Pace()
    programs = [(contextvars.copy_context(), Program(pace)) for _ in range(64)]
    for _ in range(4):
        for context, program in programs:
            context.run(program.handle, 1.0)
    assert pace.ahead_count == 0
