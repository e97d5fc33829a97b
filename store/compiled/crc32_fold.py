"""Folding for CRC-32: many bytes become 16 with the same remainder, by the CPU's multiplication of polynomials.

The bytes read so far are a polynomial over GF(2). 128 bits of it, times a power of x, can be added to the 128 bits that lie
that many bits further on. Four such accumulators run side by side and are folded into one at the end. On a CPU with 512-bit
registers each accumulator is four times as wide, if there are enough bytes. See V. Gopal et al., "Fast CRC
Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009.
"""
# numba and llvmlite build code from untyped functions.
# mypy: allow-untyped-defs, allow-untyped-calls

from typing import Any

from store.compiled.compiling import cpu_features, intrinsic

POLYNOMIAL = 0xEDB88320  # bit 31 is x^0

# The compiler ends the process when code needs an instruction that its target lacks.
_FEATURES = cpu_features()
HAS_FOLDING = "+pclmul" in _FEATURES
HAS_WIDE_FOLDING = HAS_FOLDING and "+vpclmulqdq" in _FEATURES and "+avx512f" in _FEATURES


def _power_of_x(exponent: int) -> int:
    """x^exponent modulo the polynomial, in the bit order of the product of two reflected numbers."""
    remainder = 1 << 31
    for _ in range(exponent):
        remainder = remainder >> 1 ^ (POLYNOMIAL if remainder & 1 else 0)
    return remainder << 1


def _fold_by(bit_count: int) -> tuple[int, int]:
    """The factors of both halves of 128 bits that are added `bit_count` bits further on."""
    return _power_of_x(bit_count + 32), _power_of_x(bit_count - 32)


_FOLD_2048, _FOLD_512, _FOLD_128 = map(_fold_by, (2048, 512, 128))
_LANE_COUNT = 4
_WIDE_BYTES = 64  # a register of 512 bits
_WIDE_SIZE_BYTES_MIN = _LANE_COUNT * _WIDE_BYTES


def _fold(typing_context, data, begin, size, register):
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core import cgutils

    signature = types.UniTuple(types.uint64, 2)(data, types.int64, types.int64, types.uint32)

    def generate(context, builder, signature, arguments):
        data, begin, size, register = arguments
        long, byte = ir.IntType(64), ir.IntType(8)
        narrow, wide = ir.VectorType(long, 2), ir.VectorType(long, 8)
        array = context.make_array(signature.args[0])(context, builder, data)
        first = builder.gep(builder.bitcast(array.data, byte.as_pointer()), [begin])

        def number(value):
            return ir.Constant(long, value)

        def load(kind, position):
            pointer = builder.bitcast(builder.gep(first, [position]), kind.as_pointer())
            return builder.load(pointer, align=1)

        def multiply_add(state, factors, then):
            kind = state.type
            multiply = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(kind, [kind, kind, byte]),
                "llvm.x86.pclmulqdq" + (".512" if kind == wide else ""),
            )
            keys = ir.Constant(kind, list(factors) * (kind.count // 2))
            low = builder.call(multiply, [state, keys, ir.Constant(byte, 0x00)])
            high = builder.call(multiply, [state, keys, ir.Constant(byte, 0x11)])
            return builder.xor(builder.xor(low, high), then)

        position = cgutils.alloca_once(builder, long)

        def loop(step, body):
            """Runs `body` at each position behind which at least `step` bytes are left."""
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

        def fold_lanes(kind, factors):
            """All steps over four registers of one kind, folded into one register."""
            width = 8 * kind.count
            lanes = [cgutils.alloca_once(builder, kind) for _ in range(_LANE_COUNT)]
            for index, lane in enumerate(lanes):
                builder.store(load(kind, number(width * index)), lane)
            start = builder.insert_element(
                ir.Constant(kind, [0] * kind.count), builder.zext(register, long), ir.Constant(ir.IntType(32), 0)
            )
            builder.store(builder.xor(builder.load(lanes[0]), start), lanes[0])
            builder.store(number(width * _LANE_COUNT), position)

            def fold_four(at):
                for index, lane in enumerate(lanes):
                    then = load(kind, builder.add(at, number(width * index)))
                    builder.store(multiply_add(builder.load(lane), factors, then), lane)

            loop(width * _LANE_COUNT, fold_four)
            return [builder.load(lane) for lane in lanes]

        def joined(parts, factors):
            whole = parts[0]
            for part in parts[1:]:
                whole = multiply_add(whole, factors, part)
            return whole

        def halves(state):
            return [builder.extract_element(state, ir.Constant(ir.IntType(32), index)) for index in range(2)]

        state = cgutils.alloca_once(builder, narrow)

        def fold_narrow():
            builder.store(joined(fold_lanes(narrow, _FOLD_512), _FOLD_128), state)

        def fold_wide():
            whole = cgutils.alloca_once_value(builder, joined(fold_lanes(wide, _FOLD_2048), _FOLD_512))
            loop(
                _WIDE_BYTES,
                lambda at: builder.store(multiply_add(builder.load(whole), _FOLD_512, load(wide, at)), whole),
            )
            nothing, pair = ir.Constant(wide, ir.Undefined), ir.VectorType(ir.IntType(32), 2)
            parts = [
                builder.shuffle_vector(builder.load(whole), nothing, ir.Constant(pair, [index, index + 1]))
                for index in range(0, wide.count, 2)
            ]
            builder.store(joined(parts, _FOLD_128), state)

        if HAS_WIDE_FOLDING:
            is_short = builder.icmp_signed("<", size, number(_WIDE_SIZE_BYTES_MIN))
            with builder.if_else(is_short) as (then, otherwise):
                with then:
                    fold_narrow()
                with otherwise:
                    fold_wide()
        else:
            fold_narrow()
        loop(16, lambda at: builder.store(multiply_add(builder.load(state), _FOLD_128, load(narrow, at)), state))
        return context.make_tuple(builder, signature.return_type, halves(builder.load(state)))

    return signature, generate


# fold(data, begin, size, register): two numbers. Their 16 bytes, read with a CRC register of 0, give the same register as
# data[begin:][:size] read with `register`. `size` is a multiple of 16 and at least 64; nothing is checked.
fold: Any = intrinsic(_fold)
