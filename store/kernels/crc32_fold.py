"""Folding for CRC-32: many bytes become 16 with the same remainder, by the CPU's multiplication of polynomials.

What has been read so far is a polynomial over GF(2); 128 bits of it times a power of x can be added to the 128 bits that
lie so much further on. Four such lanes run side by side and are folded into one at last. See V. Gopal et al., "Fast CRC
Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009.
"""
# numba and llvmlite build code from untyped functions.
# mypy: allow-untyped-defs, allow-untyped-calls

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

POLYNOMIAL = 0xEDB88320  # bit 31 is x^0

# The compiler ends the process when it is asked for an instruction that its target does not have.
HAS_FOLDING = "+pclmul" in cpu_target.target_context.codegen().magic_tuple()[2].split(",")


def _power_of_x(exponent: int) -> int:
    """x^exponent modulo the polynomial, in the bit order of the product of two reflected numbers."""
    remainder = 1 << 31
    for _ in range(exponent):
        remainder = remainder >> 1 ^ (POLYNOMIAL if remainder & 1 else 0)
    return remainder << 1


_FOLD_512 = (_power_of_x(512 + 32), _power_of_x(512 - 32))
_FOLD_128 = (_power_of_x(128 + 32), _power_of_x(128 - 32))


def _fold(typing_context, data, begin, size, register):
    signature = types.UniTuple(types.uint64, 2)(data, types.int64, types.int64, types.uint32)

    def generate(context, builder, signature, arguments):
        data, begin, size, register = arguments
        long, vector = ir.IntType(64), ir.VectorType(ir.IntType(64), 2)
        array = context.make_array(signature.args[0])(context, builder, data)
        first = builder.gep(builder.bitcast(array.data, ir.IntType(8).as_pointer()), [begin])
        multiply = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector, vector, ir.IntType(8)]), "llvm.x86.pclmulqdq"
        )

        def load(position):
            pointer = builder.bitcast(builder.gep(first, [position]), vector.as_pointer())
            return builder.load(pointer, align=1)

        def multiply_add(state, constants, then):
            keys = ir.Constant(vector, list(constants))
            low = builder.call(multiply, [state, keys, ir.Constant(ir.IntType(8), 0x00)])
            high = builder.call(multiply, [state, keys, ir.Constant(ir.IntType(8), 0x11)])
            return builder.xor(builder.xor(low, high), then)

        def number(value):
            return ir.Constant(long, value)

        lanes = [cgutils.alloca_once(builder, vector) for _ in range(4)]
        for index, lane in enumerate(lanes):
            builder.store(load(number(16 * index)), lane)
        start = builder.insert_element(
            ir.Constant(vector, [0, 0]), builder.zext(register, long), ir.Constant(ir.IntType(32), 0)
        )
        builder.store(builder.xor(builder.load(lanes[0]), start), lanes[0])
        position = cgutils.alloca_once_value(builder, number(64))

        def loop(step, body):
            """Runs `body` at each position from which on `step` bytes are left."""
            test, run, done = (builder.append_basic_block(name) for name in ("fold.test", "fold.run", "fold.done"))
            builder.branch(test)
            builder.position_at_end(test)
            is_left = builder.icmp_signed("<=", builder.add(builder.load(position), number(step)), size)
            builder.cbranch(is_left, run, done)
            builder.position_at_end(run)
            body(builder.load(position))
            builder.store(builder.add(builder.load(position), number(step)), position)
            builder.branch(test)
            builder.position_at_end(done)

        def fold_four(at):
            for index, lane in enumerate(lanes):
                builder.store(
                    multiply_add(builder.load(lane), _FOLD_512, load(builder.add(at, number(16 * index)))), lane
                )

        loop(64, fold_four)
        state = lanes[0]
        for lane in lanes[1:]:
            builder.store(multiply_add(builder.load(state), _FOLD_128, builder.load(lane)), state)
        loop(16, lambda at: builder.store(multiply_add(builder.load(state), _FOLD_128, load(at)), state))
        whole = builder.load(state)
        halves = [builder.extract_element(whole, ir.Constant(ir.IntType(32), index)) for index in range(2)]
        return context.make_tuple(builder, signature.return_type, halves)

    return signature, generate


# fold(data, begin, size, register): two numbers whose 16 bytes, after a register of 0, leave the same register as
# data[begin:][:size] after this one. `size` is a multiple of 16 and at least 64; nothing is checked.
fold: Any = intrinsic(_fold)
