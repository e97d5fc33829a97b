"""The README of the chart, made from the comments of its values.yaml; tools/render_manifests.py writes it.

A comment belongs to the value on its own line, or to the one that follows it with the same indentation.
"""

import dataclasses
import re

_LINE = re.compile(r"^(?P<indent> *)(?P<name>\w+):(?: (?P<default>[^#\s].*?))?(?: +# (?P<comment>.*))?$")
HEAD = """# The chart of Reput

The RocketMQ message store as gRPC services: shards behind a gateway. It needs Kubernetes 1.32 or newer.

```sh
helm install reput {chart} --set tls.certManager.enabled=true,keys.create=true
helm test reput
```

Without cert-manager, `deploy/make-secrets` makes the certificates and keys. `docs/kubernetes.md` of the project has the
whole story, with upgrades, more shards and copied stores.

## Values

Wrong names and values are refused before anything is installed, those of `settings` among them. This table is made from
`values.yaml` by `tools/render_manifests.py`.

| value | default | meaning |
| --- | --- | --- |
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One value, or a group of them.

    Attributes:
        path: its name, with those of the groups that it is in.
        default: as values.yaml has it; empty for a group.
        meaning: its comments.
    """

    path: str
    default: str
    meaning: str


def rows(values: str) -> list[Row]:
    """The values of a values.yaml in their order; a group without a comment has no row."""
    found: list[Row] = []
    above: list[str] = []
    groups: list[tuple[int, str]] = []
    for line in values.splitlines():
        text = line.strip()
        if text.startswith("# "):
            above.append(text[2:])
            continue
        match = _LINE.match(line)
        if match is None:  # an empty line, or an item of a list
            above = []
            continue
        indent = len(match["indent"])
        groups = [group for group in groups if group[0] < indent]
        path = ".".join([*(name for _, name in groups), match["name"]])
        meaning = " ".join([*above, *filter(None, [match["comment"]])])
        above = []
        if match["default"] is None:
            groups.append((indent, match["name"]))
        if match["default"] is not None or meaning:
            found.append(Row(path, match["default"] or "", meaning))
    return found


def chart_readme(values: str) -> str:
    """The text of the README."""
    lines = []
    for row in rows(values):
        default = f"`{row.default}`" if row.default else ""
        lines.append(f"| `{row.path}` | {default} | {row.meaning.replace('|', chr(92) + '|')} |\n")
    return HEAD.replace("{chart}", "oci://REGISTRY/charts/reput") + "".join(lines)
