"""The bill of materials of an image, CycloneDX 1.5 JSON: `python tools/sbom.py ENVIRONMENT OUT`.

What is installed, as the environment and dpkg themselves say: each Python distribution (`pkg:pypi/...`), each Debian package
(`pkg:deb/...`) and Python. Standard library alone: it runs inside the build, where every installed tool would have to be on
the bill.
"""

import json
import pathlib
import platform
import subprocess
import sys
from importlib import metadata
from urllib.parse import quote

DPKG_FORMAT = "${db:Status-Abbrev}\t${Package}\t${Version}\t${Architecture}\n"


def python_components(site_packages: pathlib.Path) -> list[dict[str, object]]:
    """Each distribution there, by name."""
    components = []
    for distribution in metadata.distributions(path=[str(site_packages)]):
        name, version = distribution.metadata["Name"], distribution.version
        component: dict[str, object] = {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{quote(name.lower().replace('_', '-'))}@{quote(version)}",
        }
        license_ = distribution.metadata.get("License-Expression")
        if license_:
            component["licenses"] = [{"expression": license_}]
        components.append(component)
    return sorted(components, key=lambda component: str(component["name"]).lower())


def debian_components() -> list[dict[str, object]]:
    """Each installed package, as dpkg lists them."""
    listed = subprocess.run(["dpkg-query", "-W", "-f", DPKG_FORMAT], capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in listed.splitlines()]
    return [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}",
        }
        for state, name, version, architecture in rows
        if state.startswith("ii")
    ]


def bill(site_packages: pathlib.Path) -> dict[str, object]:
    """The document."""
    python = platform.python_version()
    components = [
        {"type": "platform", "name": "python", "version": python, "purl": f"pkg:generic/python@{python}"},
        *python_components(site_packages),
        *debian_components(),
    ]
    for component in components:
        component["bom-ref"] = component["purl"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": "reput"}},
        "components": components,
    }


def main(environment: str, out: str) -> int:
    """Write it; without a time or a serial number, so that the same image has the same bill."""
    (site_packages,) = pathlib.Path(environment).glob("lib/python3*/site-packages")
    pathlib.Path(out).write_text(json.dumps(bill(site_packages), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
