"""Whether steps that were seen are a behaviour of a model: the model may only take the step that comes next.

`SEE` in a step of the model names what it is seen as; with the macro TRACE a process, made here, says which one is next.
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.models.spin import MODELS, SECONDS_MAX, run
from tests.models.traced_world import Seen

FLAGS = ("-O0", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=4096", "-DMEMLIM=2048")
DEPTH_MAX = 100_000
# Of `what`: 0 says that the next step is to be named.
FIRST_NUMBER = 1


def names_of(model: str) -> list[str]:
    """What the steps of a model are seen as."""
    return sorted(set(re.findall(r"\bSEE\((\w+), [^)]", (MODELS / model).read_text(encoding="utf-8"))) - {"what"})


class TraceChecker:
    """A model, compiled once for many traces.

    Args:
        model: a file of this directory.
        directory: an empty one.
        macros: its bounds; a trace has to fit into them.
    """

    def __init__(self, model: str, directory: Path, macros: Mapping[str, object]) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._numbers = {name: FIRST_NUMBER + at for at, name in enumerate(names_of(model))}
        (directory / model).write_text((MODELS / model).read_text(encoding="utf-8"), encoding="utf-8")
        (directory / "trace.pml").write_text(_process(self._numbers), encoding="utf-8")
        defined = [f"-D{name}={value}" for name, value in {**macros, "TRACE": 1}.items()]
        run(["spin", *defined, "-a", model], directory)
        run(["gcc", *FLAGS, "-o", "pan", "pan.c"], directory)

    def explained(self, steps: Sequence[Seen]) -> int:
        """How many steps, from the first one on, some behaviour of the model has; all of them: the trace is one.

        Raises:
            AssertionError: a behaviour with these steps breaks what the model promises.
        """
        lines = [f"{self._numbers[one.what]} {one.who} {one.whom} {one.number}\n" for one in steps]
        (self._directory / "steps").write_text(f"{len(steps)}\n" + "".join(lines), encoding="utf-8")
        done = subprocess.run(
            ["./pan", "-E", f"-m{DEPTH_MAX}", "-w18"],  # -E: to stand still is no fault
            cwd=self._directory,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=True,
        )
        assert "max search depth too small" not in done.stdout, done.stdout
        broken = re.search(r"pan:\d+: (.*) \(at depth", done.stdout)
        reached = max((int(each) for each in re.findall(r"^at (\d+)$", done.stdout, re.MULTILINE)), default=0)
        # What is fetched last is not taken yet.
        is_all = broken is not None and "at<step_count" in broken[1].replace(" ", "")
        assert broken is None or is_all, f"after {reached} steps: {broken[1]}"
        return len(steps) if is_all else max(0, reached - 1)


def _process(numbers: Mapping[str, int]) -> str:
    """The part of a model that names the next step."""
    defines = "".join(f"#define {name}_SEEN {number}\n" for name, number in numbers.items())
    return (
        defines
        + r"""
#define SEE(a, b, c, d) (what == a##_SEEN && who == (b) && whom == (c) && number == (d))
#define SEEN what = 0; who = 0; whom = 0; number = 0; k = 0
#define TAKEN(i, j) number
c_decl {
    \#include <stdio.h>
    \#include <stdlib.h>
    static int (*seen_steps)[4], steps, farthest;
    static void load_steps(void) {
        FILE *file = fopen("steps", "r");
        if (seen_steps != 0) return;
        if (file == 0 || fscanf(file, "%d", &steps) != 1) exit(9);
        seen_steps = calloc(steps + 1, sizeof *seen_steps);
        for (int n = 0; n < steps; n++)
            for (int m = 0; m < 4; m++)
                if (fscanf(file, "%d", &seen_steps[n][m]) != 1) exit(9);
        fclose(file);
    }
};
int at;
int step_count;
byte what;
byte who;
byte whom;
byte number;

proctype next_step() {
    d_step { c_code { load_steps(); now.step_count = steps; } }
    do
    :: d_step { what == 0 && at < step_count ->
        c_code {
            now.what = seen_steps[now.at][0]; now.who = seen_steps[now.at][1];
            now.whom = seen_steps[now.at][2]; now.number = seen_steps[now.at][3];
            now.at++;
            if (now.at > farthest) { farthest = now.at; printf("at %d\n", farthest); }
        } }
    :: d_step { what == 0 && step_count > 0 && at >= step_count -> assert(at < step_count) }
    od
}
"""
    )
