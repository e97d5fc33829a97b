"""Generate the protobuf code and the descriptor set beside their sources, or prove that they are fresh.

    python tools/proto.py           write
    python tools/proto.py --check   exit 1 when what is committed differs from what would be written

The descriptor set carries the comments of the .proto files, which Python's own descriptors drop:
reflection serves it, so that `grpcurl describe` shows them.
"""

import argparse
import filecmp
import pathlib
import sys
import tempfile

import grpc_tools
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE_ROOT = ROOT / "protos"
DESCRIPTOR_SET = "reput/descriptors.binpb"


def _include_dirs() -> list[str]:
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    return [f"-I{SOURCE_ROOT}", f"-I{well_known}"]


def generate(target: pathlib.Path) -> None:
    """Write all generated files below `target`, laid out like `protos/`."""
    # Google's file lies there for other generators; its Python code comes from googleapis-common-protos.
    paths = sorted(path.relative_to(SOURCE_ROOT) for path in SOURCE_ROOT.rglob("*.proto"))
    sources = [str(path) for path in paths if path.parts[0] != "google"]
    status = protoc.main(
        [
            "protoc",
            *_include_dirs(),
            f"--python_out={target}",
            f"--pyi_out={target}",
            f"--grpc_python_out={target}",
            f"--plugin=protoc-gen-mypy_grpc={pathlib.Path(sys.executable).parent / 'protoc-gen-mypy_grpc'}",
            f"--mypy_grpc_out=quiet,generate_concrete_servicer_stubs,only_sync:{target}",
            "--include_imports",
            "--include_source_info",
            f"--descriptor_set_out={target / DESCRIPTOR_SET}",
            *sources,
        ]
    )
    if status != 0:
        sys.exit(status)
    for pattern in ("*_pb2_grpc.py", "*_pb2_grpc.pyi"):
        for empty in target.rglob(pattern):
            if "class " not in empty.read_text():
                empty.unlink()


def _generated_files(root: pathlib.Path) -> set[str]:
    patterns = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi", "*.binpb")
    return {str(path.relative_to(root)) for pattern in patterns for path in root.rglob(pattern)}


def check() -> int:
    """Compare a fresh generation with the committed files; print each that differs."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = pathlib.Path(scratch)
        (fresh / "reput").mkdir()
        generate(fresh)
        names = _generated_files(fresh) | _generated_files(SOURCE_ROOT)
        stale = [
            name
            for name in sorted(names)
            if not (fresh / name).exists()
            or not (SOURCE_ROOT / name).exists()
            or not filecmp.cmp(fresh / name, SOURCE_ROOT / name, shallow=False)
        ]
    for name in stale:
        print(f"stale: protos/{name} (run `make proto`)", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    if parser.parse_args().check:
        sys.exit(check())
    generate(SOURCE_ROOT)
