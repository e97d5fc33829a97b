"""The process that only evaluates CEL: `python -m gateway.search.cel_worker`, with its socket as stdin.

Expressions are not trusted. CEL cannot reach anything outside a message. If its evaluator has a fault, the limits of this
process still hold:

    file descriptors   no new one can be opened: no file, no socket, no process with pipes
    address space      MEMORY_BYTES_MAX: allocating more ends only this process
    processor time     EVALUATION_CPU_SECONDS for one message, by a timer of the kernel, which ends this process whatever
                       the evaluator does; CPU_SECONDS_MAX for the life of the process
    priority           below the services of this machine

Its exit code gives the gateway the reason of its end (cel_sandbox.py). It ends by itself when its socket is closed.
"""

import functools
import os
import resource
import signal
import socket
import sys

# The process itself takes 50 MiB. A body of 8 MiB is held three times; as text it takes up to 32 MiB, and in the
# evaluator's form up to 24.
MEMORY_BYTES_MAX = 256 << 20
EVALUATION_CPU_SECONDS = 1.0
# A process that has used this much time is replaced like one that failed, so no caller can keep one busy for ever.
CPU_SECONDS_MAX = 3_600
NICENESS = 10
PROGRAM_COUNT_MAX = 16
EXIT_NO_MEMORY = 12


def lock_down() -> None:
    """Remove every right that this process does not need; this cannot be undone."""
    os.nice(NICENESS)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # an expression may control what a failing evaluator prints
    for limit, amount in (
        (resource.RLIMIT_AS, MEMORY_BYTES_MAX),
        (resource.RLIMIT_CPU, CPU_SECONDS_MAX),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(limit, (amount, amount))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the gateway


def serve(gateway: socket.socket) -> None:
    """Answer requests until the gateway closes the socket."""
    from gateway.search.cel_frames import ERROR_CHARACTERS_MAX, PREFIX, decode_request, encode_line
    from gateway.search.cel_program import CelFaultError, CelProgram

    program_of = functools.lru_cache(PROGRAM_COUNT_MAX)(CelProgram)
    requests = gateway.makefile("rb")
    lock_down()
    gateway.sendall(encode_line({"ready": True}))
    while prefix := requests.read(PREFIX.size):
        header_size, bodies_size = PREFIX.unpack(prefix)
        expression, messages = decode_request(requests.read(header_size), requests.read(bodies_size))
        try:
            signal.setitimer(signal.ITIMER_PROF, EVALUATION_CPU_SECONDS)
            program = program_of(expression)
            signal.setitimer(signal.ITIMER_PROF, 0)
            gateway.sendall(encode_line(True))
            for fields, body in messages:
                signal.setitimer(signal.ITIMER_PROF, EVALUATION_CPU_SECONDS)
                value = program.value_of(fields, body)
                signal.setitimer(signal.ITIMER_PROF, 0)
                answer = {"error": value[:ERROR_CHARACTERS_MAX]} if isinstance(value, str) else value
                gateway.sendall(encode_line(answer))
        except CelFaultError as fault:
            signal.setitimer(signal.ITIMER_PROF, 0)
            gateway.sendall(encode_line({"fault": fault.what, "line": fault.line, "column": fault.column}))


if __name__ == "__main__":
    try:
        serve(socket.socket(fileno=0))
    except MemoryError:
        os._exit(EXIT_NO_MEMORY)
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(0)
