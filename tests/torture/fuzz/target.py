"""A target of fuzzing: bytes, what is called with them, and which errors are a proper refusal of them."""

import contextlib
import functools
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
# Of one input, which has some kilobytes: a decoder takes milliseconds, instrumented and on a busy machine some hundred.
# Processor time of the thread, since the machine may be busy with something else.
WORK_SECONDS_MAX = 5.0


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="reput-fuzz-")


def scratch() -> Path:
    """A directory of this process, for what only takes files; it goes with the process."""
    return Path(_scratch().name)


class TooMuchWorkError(Exception):
    """An input took longer than WORK_SECONDS_MAX."""


@dataclass(frozen=True, slots=True)
class Target:
    """One decoder.

    Attributes:
        call: takes any bytes; what it raises that is no refusal is a find, as is an assertion in it.
        seeds: gives good inputs.
        tokens: pieces that a mutation may put anywhere.
        refusals: the errors by which `call` may refuse bytes, as its docstring says.
        input_bytes_max: longer inputs are not tried.
    """

    call: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    tokens: tuple[bytes, ...] = ()
    refusals: tuple[type[Exception], ...] = ()
    input_bytes_max: int = 8192

    def run(self, data: bytes) -> None:
        """Tries one input; returns, or raises what was found."""
        began = time.thread_time()
        with contextlib.suppress(*self.refusals):
            self.call(data)
        seconds = time.thread_time() - began
        if seconds > WORK_SECONDS_MAX:
            raise TooMuchWorkError(f"{len(data)} bytes took {seconds:.1f} s")

    def corpus(self, name: str) -> list[bytes]:
        """The seeds, and what is kept in the corpus."""
        kept = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
        return [*self.seeds(), *kept]


def mutate(data: bytes, corpus: list[bytes], tokens: tuple[bytes, ...], random_: random.Random) -> bytes:
    """Another input made of one: bits, bytes, pieces cut out, doubled, swapped with another input's, tokens put in."""
    result = bytearray(data)
    for _ in range(random_.choice((1, 1, 1, 2, 3, 8))):
        size = len(result)
        at = random_.randrange(size + 1)
        kind = random_.randrange(8)
        if kind == 0 and size:
            result[at % size] ^= 1 << random_.randrange(8)
        elif kind == 1 and size:
            result[at % size] = random_.choice((0, 1, 2, 0x7F, 0x80, 0xFF, random_.randrange(256)))
        elif kind == 2:
            del result[at : at + random_.randrange(1, 32)]
        elif kind == 3:
            result[at:at] = random_.randbytes(random_.randrange(1, 16))
        elif kind == 4:
            other = random_.choice(corpus)
            begin = random_.randrange(len(other) + 1)
            piece = other[begin : begin + random_.randrange(1, 64)]
            result[at : at + len(piece)] = piece
        elif kind == 5:
            result[at:at] = result[at : at + random_.randrange(1, 64)]
        elif kind == 6:
            del result[at:]
        elif tokens:
            token = random_.choice(tokens)
            result[at : at + len(token) * random_.randrange(2)] = token
    return bytes(result)
