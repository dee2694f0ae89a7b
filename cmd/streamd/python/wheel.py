"""Builds the wheel: the modules of the folder streamd, and the program for one platform.

    python3 wheel.py [--to DIR] [--platform linux/amd64] [--program FILE]

It needs Python and Go, and nothing else. The same commit gives the same bytes: files have a fixed
time and order, and the program has no paths of this machine in it.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[2]
SUMMARY = "The client of streamd, a scikit-learn classifier, and the program itself"

# A program without cgo needs no C library, so it also runs where there is musl. Go 1.26 needs
# macOS 12.
TAGS = {
    "linux/amd64": "manylinux2014_x86_64.manylinux_2_17_x86_64.musllinux_1_1_x86_64",
    "linux/arm64": "manylinux2014_aarch64.manylinux_2_17_aarch64.musllinux_1_1_aarch64",
    "darwin/arm64": "macosx_12_0_arm64",
}


def version() -> str:
    """The next release as a development version: by the time and the name of the commit."""

    def git(*args: str) -> str:
        return subprocess.run(["git", "-C", str(TOP), *args], check=True, capture_output=True, text=True).stdout.strip()

    try:
        stamp, commit = git("show", "-s", "--format=%cd %h", "--abbrev=12", "--date=format:%Y%m%d%H%M%S", "HEAD").split()
        local = f"+g{commit}" + (".modified" if git("status", "--porcelain") else "")
        return f"0.1.dev{stamp}{local}"
    except (OSError, subprocess.CalledProcessError):
        return "0.1.dev0"  # not a checkout


def build(platform: str, to: pathlib.Path) -> None:
    """Builds the program: without cgo and symbols, and without the paths of this machine."""
    system, processor = platform.split("/")
    command = ["go", "build", "-trimpath", "-buildvcs=auto", "-ldflags", "-s -w", "-o", str(to), "./cmd/streamd"]
    environment = os.environ | {"CGO_ENABLED": "0", "GOOS": system, "GOARCH": processor}
    subprocess.run(command, cwd=TOP, env=environment, check=True)


def native() -> str:
    out = subprocess.run(["go", "env", "GOHOSTOS", "GOHOSTARCH"], check=True, capture_output=True, text=True).stdout
    return "/".join(out.split())


def write(to: pathlib.Path, platform: str, program: pathlib.Path) -> pathlib.Path:
    """Writes the wheel into a folder, and returns its path."""
    number, tags = version(), TAGS[platform]
    info, data = f"streamd-{number}.dist-info", f"streamd-{number}.data"
    metadata = f"""\
Metadata-Version: 2.4
Name: streamd
Version: {number}
Summary: {SUMMARY}
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.11
Provides-Extra: arrow
Requires-Dist: pyarrow; extra == "arrow"
Provides-Extra: sklearn
Requires-Dist: pyarrow; extra == "sklearn"
Requires-Dist: scikit-learn>=1.6; extra == "sklearn"
Provides-Extra: river
Requires-Dist: river; extra == "river"
Description-Content-Type: text/markdown

{(HERE / "README.md").read_text()}"""
    wheel = ["Wheel-Version: 1.0", "Generator: streamd", "Root-Is-Purelib: false"]
    wheel += [f"Tag: py3-none-{tag}" for tag in tags.split(".")]
    files = {f"streamd/{path.name}": path.read_bytes() for path in (HERE / "streamd").iterdir() if path.is_file()}
    # pip puts what is in scripts on the path, and makes it executable.
    files[f"{data}/scripts/streamd"] = program.read_bytes()
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = ("\n".join(wheel) + "\n").encode()
    files[f"{info}/licenses/LICENSE"] = (TOP / "LICENSE").read_bytes()
    record = ""
    for name in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(files[name])}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()

    to.mkdir(parents=True, exist_ok=True)
    path = to / f"streamd-{number}-py3-none-{tags}.whl"
    part = path.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):  # as PEP 427 advises
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            out.writestr(entry, files[name])
    part.rename(path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path("dist"), help="folder that the wheel is written to")
    parser.add_argument("--platform", choices=TAGS, help="platform of the program; by default that of this machine")
    parser.add_argument("--program", type=pathlib.Path, help="program that is already built, in place of a new one")
    args = parser.parse_args()
    platform = args.platform or native()
    if platform not in TAGS:
        sys.exit(f"wheel.py: there is no wheel for {platform}; --platform is one of {', '.join(TAGS)}")
    with tempfile.TemporaryDirectory() as folder:
        program = args.program
        if program is None:
            program = pathlib.Path(folder) / "streamd"
            build(platform, program)
        path = write(args.to, platform, program)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
