"""A build hook of hatchling for the wheel of `reput`: its kernels are compiled, and it requires `reput-client` of its version.

The dependency is not in pyproject.toml because `make lock` resolves that file's dependencies from the package index, and in a
checkout `reput_client` is already on the path.

The wheel is for this kind of machine and for Python 3.11 and later. Where kernels cannot be compiled it is for any machine, and
plain Python does their work.
"""

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelHook(BuildHookInterface[Any]):
    """Adds the dependency and the compiled kernels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling."""
        build_data["dependencies"].append(f"reput-client=={self.metadata.version}")
        root = Path(self.root)
        sys.path.insert(0, self.root)
        try:
            from deploy import build_kernels
            from store.compiled import built
        finally:
            sys.path.remove(self.root)
        try:
            files = build_kernels.build_missing()
        except (build_kernels.BuildError, OSError) as error:
            self.app.display_warning(f"The wheel has no compiled kernels: {error}")
            return
        build_data["force_include"].update({str(path): str(path.relative_to(root)) for path in files})
        build_data["pure_python"] = False
        if built.SUFFIX == built.STABLE_ABI:
            build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        else:
            build_data["infer_tag"] = True
