"""Random SQL filters and properties, and what RocketMQ's own filter says to them (`FilterJudge.java`).

`python -m tests.consumer_svc.filters.sql_expressions` writes data/sql_answers.jsonl anew: the properties in its first line,
then a line for each expression, with the answer. It needs a JDK 17 and Maven.
"""

import json
import random
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.rocketmq import real_broker
from tests.support.waiting import WAIT_SECONDS_MAX

ANSWERS = Path(__file__).parent / "data" / "sql_answers.jsonl"
EXPRESSION_COUNT = 4000
SEED = 16

NAMES = ("a", "b", "c", "TAGS", "_x", "$y1", "Color")
TEXTS = (
    *("3", "5", "-1", "0", "10", "+7", "007", "2147483647", "2147483648", "-2147483648", "-2147483649"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "3.14", "3.0", "5.", ".5", "-0.0", "0.0"),
    *("1e3", "1E-3", "1e400", "1e-400", "NaN", "-NaN", "Infinity", "-Infinity", "nan", "inf", "1f", "1.5d", "1L"),
    *(
        "0x10",
        "0x1p3",
        "0x.8P-1f",
        " 5",
        "5 ",
        " 5.5 ",
        "\t3\n",
        "1_000",
        "",
        "-",
        "+",
        ".",
        "e5",
        "٣",
        "５",
        "3３",
        "𝟛",
    ),
    *("true", "TRUE", "False", "yes", "red", "RED", "reddish", "it's", "''", "中文", "x y", "0" * 30 + "5", "9" * 30),
)
PLAIN_TEXTS = ("1", "3", "4", "5", "10", "100", "-5", "3.14", "red", "true")
NUMBERS = (
    *("0", "1", "3", "5", "10", "100", "2147483647", "2147483648", "9223372036854775807", "5L", "3l", "2147483648L"),
    *("3.14", "3.0", "5.", ".5", "5.5E1", "1e3", "1.E-3", "007.5", "1e308", "4.9e-324", "0.1", "9007199254740993"),
    *("9007199254740993.0", "2147483648.0"),
)
REFUSED_NUMBERS = (
    "9223372036854775808",
    "99999999999999999999L",
    "0.0",
    "1e309",
    "1e-400",
    "0L",
    "007",
    "0x10",
    "1f",
    "1.5d",
)
STRINGS = (
    "'3'",
    "'5'",
    "'red'",
    "'re'",
    "'d'",
    "''",
    "'it''s'",
    "''''",
    "'true'",
    "'中文'",
    "' '",
    "'a\nb'",
    "'\\'",
    "'x y'",
)
ORDERS = ("<", "<=", ">", ">=")
JUNK = (
    *(
        "LIKE",
        "AND",
        "or",
        "Not",
        "is",
        "NULL",
        "between",
        "in",
        "(",
        ")",
        ",",
        "=",
        "<>",
        "!=",
        "==",
        "<",
        ">",
        "+",
        "-",
    ),
    *(
        "--",
        "/*",
        "*/",
        "'",
        '"',
        ";",
        "&&",
        "é",
        "K",
        "ſ",
        "ı",
        "%",
        "*",
        "/",
        ".",
        "5",
        "'x'",
        "a",
        "\x00",
        "\u3000",
        "@",
        "\v",
    ),
)
BLANKS = (" ", "  ", "\t", "\n", "\r\n", "\f", " /* c */ ", "/***/", " -- c\n", "--\r", "/* '*/")
# Where the lines between two kinds of numbers, of errors and of NULL lie.
CHOSEN = (
    *(
        "a = 3 or b <> 4 Or c > 5 OR TAGS <= 4",
        "a in ('3', '4', '5')",
        "a not in ('3','4','5','6','7')",
        "a is null",
        "a IS NOT NULL",
    ),
    *(
        "NOT a = 5",
        "NOT (a = 5)",
        "NOT NOT a = TRUE",
        "TRUE",
        "FALSE",
        "NULL",
        "a",
        "(a)",
        "NOT a",
        "-a",
        "5",
        "'x'",
        "a = -5",
    ),
    *(
        "a = --5",
        "a > - 5",
        "a > +5",
        "+ + a > 5",
        "-(5) < a",
        "a between -5 and 5",
        "a between 5 and -5",
        "a between 5 and 3",
    ),
    *(
        "a between 3 and 3",
        "a not between 5 and 3",
        "a between '1' and '2'",
        "a between null and 3",
        "a not between null and 3",
    ),
    *(
        "a between b and c",
        "a between 3 and b",
        "5 between 3 and 7",
        "5 between a and 7",
        "a between 3.5 and 3",
        "a between 3l and 3.5",
    ),
    *(
        "a = null",
        "null = a",
        "a <> null",
        "a > null",
        "null is null",
        "5 is null",
        "'x' is not null",
        "true is null",
        "(a=1) is null",
    ),
    *(
        "a = true",
        "true = a",
        "a = false",
        "false = 'x'",
        "'x' = false",
        "true = true",
        "true = false",
        "5 = true",
        "true = 5",
    ),
    *(
        "5 = 5.0",
        "5 = 5L",
        "2147483648 > 5",
        "5 < 2147483648.0",
        "9007199254740993 = 9007199254740993.0",
        "'5' = 5",
        "5 = '5'",
    ),
    *(
        "'5.0' = 5",
        "'true' = true",
        "'a' = 'b'",
        "'5' > 3",
        "a > '3'",
        "a > true",
        "(a > 3) > 2",
        "(a = 3) = true",
        "(a = 3) = (b = 3)",
    ),
    *(
        "(a = 3) = b",
        "b = (a = 3)",
        "(a = 3) = 5",
        "5 = (a = 3)",
        "a = b",
        "a <> b",
        "a < b",
        "a >= b",
        "a = a",
        "a <= a",
        "-a = b",
    ),
    *(
        "b = -a",
        "-a is null",
        "-'x' = a",
        "-true = a",
        "-null = a",
        "-(a > 5) is null",
        "-(a = 3) = b",
        "(a > 3) is not null",
    ),
    *(
        "a contains 'e'",
        "a not contains 'e'",
        "a contains ''",
        "a not contains ''",
        "5 contains '5'",
        "5 not contains '5'",
    ),
    *(
        "'red' contains 'e'",
        "(a = 3) contains 'x'",
        "(a > 3) not contains ''",
        "(a > 3) contains 'x'",
        "a contains 'e' contains 'r'",
    ),
    *(
        "a startswith 're' and not endswith 'd'",
        "a startswith 're' and a not endswith 'd'",
        "a contains b",
        "a contains 5",
    ),
    *(
        "a in ()",
        "a in ('x',)",
        "a in (5)",
        "a in 'x'",
        "'a' in ('a')",
        "(a) in ('3')",
        "-a in ('3')",
        "5 in ('5')",
        "a not in ('3')",
    ),
    *(
        "a in ('3') in ('3')",
        "a is 5",
        "a is true",
        "a is not 5",
        "a is not null is null",
        "a = 3 = true",
        "a > 3 > 2",
        "a <> 3 <> true",
    ),
    *(
        "a = 3 and",
        "and a = 3",
        "a and b",
        "a and 5",
        "a or 'x'",
        "a = 3 and (b)",
        "not 5",
        "not 'x'",
        "not (a)",
        "not -a",
        "not null",
    ),
    *(
        "a=3AND b=3",
        "a=3and5=5",
        "a between 3and 5",
        "andy = 3",
        "a = ' AND '",
        "nota = 3",
        "not(a)=b",
        "a in('3')",
        "a is nulls",
    ),
    *(
        "isnull = 3",
        "a isnull",
        "a notin ('3')",
        "a =3or b=5",
        "a > 3.and b > 3",
        "a>.5",
        "a>5.e1",
        "a>5e",
        "a > 5e1e1",
        "a > 1.2.3",
    ),
    *(
        "a LIKE 'x%'",
        "a = 3 b = 4",
        "a = 3)",
        "a = 3) AND b = 5",
        "(a = 3",
        "a = 3;",
        "a = 3, b",
        "a == 3",
        "a != 3",
        "a = 3 -- c",
    ),
    *(
        "a = 3 --",
        "a = 3 -- c\n",
        "a = 3 -- c\n and b = 5",
        "-- c\na = 3",
        "a = 3 /* c",
        "a = 3 /* c */",
        "/* * / ** */ a = 3",
        "a /**/ = /*/*/ 3",
    ),
    *(
        "a = 3 - 1",
        "a + 1 = 3",
        "a = 'x",
        "a = 'x''",
        "a = '''x'",
        'a = "x"',
        "a = ''''''",
        "",
        " ",
        "()",
        "(",
        ")",
        "((a = 3))",
    ),
    *(
        "a = 3 K",
        "K = 3",
        "ſ = 3",
        "Iſ = 3",
        "a Iſ null",
        "é = 3",
        "a.b = 3",
        "a-b = 3",
        "a:b = 3",
        "$ = 3",
        "_ = 3",
        "a1_$ = 3",
        "1a = 3",
    ),
    *(
        "a > 9223372036854775808",
        "a > -9223372036854775808",
        "a > 0.0",
        "a > 1e309",
        "a > 0L",
        "a > 007",
        "a > 1e-400",
        "a = 0",
    ),
    *(
        "a > 5 or b = 'red'",
        "b = 'red' or a > 5",
        "a > 5 and b = 'red'",
        "b = 'red' and a > 5",
        "not (a > 5)",
        "a > 5 is null",
    ),
    *(
        "now > 3",
        "a <= now",
        "TAGS = '''it''s'''",
        "tags = 'red'",
        "Color = 'red'",
        "color = 'red'",
        "TAGS IN ('red', 'RED')",
    ),
)


def properties_of(rng: random.Random, count: int) -> list[dict[str, str]]:
    """Properties of messages; each name is missing from some."""
    messages: list[dict[str, str]] = [{}]
    while len(messages) < count:
        chosen = {name: rng.choice(PLAIN_TEXTS if rng.random() < 0.5 else TEXTS) for name in NAMES}
        messages.append({name: text for name, text in chosen.items() if rng.random() < 0.8})
    return messages


def expressions_of(rng: random.Random, count: int) -> list[str]:
    """The chosen ones, then random ones: most are right, some have a wrong type, some are damaged."""
    found = dict.fromkeys(CHOSEN)
    while len(found) < count:
        tokens = list(_condition(rng, rng.choice((0, 1, 1, 2, 3))))
        if rng.random() < 0.25:
            _damage(rng, tokens)
        blanks = BLANKS if rng.random() < 0.3 else (" ",)
        found["".join(token + (rng.choice(blanks) if rng.random() < 0.99 else "") for token in tokens)] = None
    return list(found)


def _condition(rng: random.Random, depth: int) -> Iterator[str]:
    if depth == 0:
        yield from _comparison(rng)
        return
    kind = rng.random()
    if kind < 0.7:
        yield from _condition(rng, depth - 1)
        yield rng.choice(("AND", "OR", "and", "Or"))
        yield from _condition(rng, depth - 1)
    elif kind < 0.85:
        yield from ("NOT", "(", *_condition(rng, depth - 1), ")")
    elif kind < 0.95:
        yield from ("(", *_condition(rng, depth - 1), ")")
    else:
        yield from (
            "(",
            *_condition(rng, depth - 1),
            ")",
            *rng.choice((("IS", "NULL"), ("=", "TRUE"), ("<>", "a"), ("=", "NULL"))),
        )


def _comparison(rng: random.Random) -> Iterator[str]:
    negation = rng.choice(((), (), ("NOT",), ("not",)))
    left = rng.choice(NAMES) if rng.random() < 0.85 else _operand(rng)
    kind = rng.randrange(8)
    if kind < 2:
        yield from (left, rng.choice(ORDERS), _number(rng) if rng.random() < 0.8 else _operand(rng))
    elif kind == 2:
        yield from (left, rng.choice(("=", "<>")), _operand(rng))
    elif kind == 3:
        low, high = (
            sorted((_number(rng), _number(rng)), key=_size) if rng.random() < 0.8 else (_operand(rng), _operand(rng))
        )
        yield from (left, *negation, "BETWEEN", low, "AND", high)
    elif kind == 4:
        texts = [rng.choice(STRINGS) for _ in range(rng.randint(1, 6))]
        yield from (left, *negation, "IN", "(", ",".join(texts), ")")
    elif kind == 5:
        yield from (left, *negation, rng.choice(("CONTAINS", "StartsWith", "endswith")), rng.choice(STRINGS))
    elif kind == 6:
        yield from (left, "IS", *negation, "NULL")
    else:
        yield from (rng.choice(("", "NOT")), left)


def _number(rng: random.Random) -> str:
    return rng.choice(("", "", "", "-", "+")) + rng.choice(NUMBERS if rng.random() < 0.97 else REFUSED_NUMBERS)


def _size(number: str) -> float:
    return abs(float(number.rstrip("lL"))) if number[-1] not in "fd" and "x" not in number else 0


def _operand(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(NAMES)
    if kind < 0.6:
        return rng.choice(STRINGS)
    if kind < 0.85:
        return _number(rng)
    return rng.choice(("TRUE", "False", "TRUE", "NULL", "-a", "- 'x'"))


def _damage(rng: random.Random, tokens: list[str]) -> None:
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(tokens))
        kind = rng.random()
        if kind < 0.35:
            tokens.insert(at + 1, rng.choice(JUNK))
        elif kind < 0.6:
            tokens[at] = rng.choice(JUNK)
        elif kind < 0.8 and len(tokens) > 1:
            del tokens[at]
        else:
            cut = rng.randrange(len(tokens[at]) + 1)
            tokens[at] = tokens[at][:cut] + rng.choice(JUNK) + tokens[at][cut:]


def judged_by_rocketmq(expressions: Sequence[str], messages: Sequence[dict[str, str]]) -> list[str]:
    """RocketMQ's answer to each expression: REFUSED, or T, F, N (null) or X (it throws) for each message."""
    done = subprocess.run(
        ["java", *real_broker.SHORT_LIFE, "-Dfile.encoding=UTF-8", "-cp", real_broker.classpath(), "FilterJudge"],
        input="\n".join(map(json.dumps, [messages, *expressions])) + "\n",
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=WAIT_SECONDS_MAX,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(expressions), done.stderr[-2000:]
    return answers


def read_answers() -> tuple[list[dict[str, str]], list[tuple[str, str]]]:
    """The messages, and each expression with its answer."""
    lines = ANSWERS.read_text("utf-8").splitlines()
    return json.loads(lines[0]), [(expression, answer) for expression, answer in map(json.loads, lines[1:])]


def write_answers(messages: Sequence[dict[str, str]], cases: Iterable[tuple[str, str]]) -> None:
    """The opposite."""
    lines = [messages, *map(list, cases)]
    ANSWERS.write_text("".join(json.dumps(line, ensure_ascii=True) + "\n" for line in lines), "utf-8")


if __name__ == "__main__":
    rng = random.Random(SEED)
    chosen_messages = properties_of(rng, 30)
    chosen_expressions = expressions_of(rng, EXPRESSION_COUNT)
    answers = judged_by_rocketmq(chosen_expressions, chosen_messages)
    write_answers(chosen_messages, zip(chosen_expressions, answers, strict=True))
