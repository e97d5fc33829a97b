"""A build hook of hatchling for the wheel of `reput`: it requires `reput-client` of the same version.

The dependency is not in pyproject.toml because `make lock` resolves that file's dependencies from the package index, and in a
checkout `reput_client` is already on the path.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ClientDependency(BuildHookInterface[Any]):
    """Adds the dependency."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling."""
        build_data["dependencies"].append(f"reput-client=={self.metadata.version}")
