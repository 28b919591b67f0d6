"""Makes the folder of a new integration from `template/`: `./dev new-integration NAME --upstream DIST`.

NAME as users will write it in `hymem-NAME`. What it makes passes the structural rules at once; what
is left to do is the catalogue, the contracts, the seams and an adapter for the whole suite.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEMPLATE = Path(__file__).parent / "template"


def make(names: dict[str, str], into: Path) -> Path:
    """The folder `hymem-NAME` in `into`, with the names filled in."""
    folder = into / f"hymem-{names['DASHED']}"
    if folder.exists():
        raise SystemExit(f"{folder} is there already")
    pattern = re.compile("|".join(names))
    for path in sorted(TEMPLATE.rglob("*")):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        target = folder / pattern.sub(lambda found: names[found[0]], str(path.relative_to(TEMPLATE)))
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        target.write_text(pattern.sub(lambda found: names[found[0]], text), encoding="utf-8")
    shutil.copy(ROOT / "LICENSE", folder)
    return folder


def make_known(names: dict[str, str]) -> None:
    """Have the checkers and the matrix know it."""
    name, dashed = names["NAME"], names["DASHED"]
    project = ROOT / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    text = text.replace('"hymem_testing"]', f'"hymem_{name}", "hymem_testing"]')
    text = text.replace(":compat_tests", f":integrations/hymem-{dashed}/src:compat_tests")
    project.write_text(text, encoding="utf-8")
    with (ROOT / "compat_tests" / "matrix.toml").open("a", encoding="utf-8") as file:
        file.write(
            f"""
[{dashed}]
upstream = "{names["UPSTREAM"]}"
packages = [
    "packages/hymem", "packages/hymem-autoload", "packages/hymem-testing", "integrations/hymem-{dashed}",
]
tests = ["integrations/hymem-{dashed}/tests", "compat_tests/tests"]
pythons = ["3.10", "3.13"]

[{dashed}.versions]
"{names["FLOOR"]}" = []
"""
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="as in hymem-NAME: lower case, with hyphens")
    parser.add_argument("--upstream", required=True, help="the framework's distribution")
    parser.add_argument("--module", help="the module users import (the distribution's name)")
    parser.add_argument("--title", help="what it is called in prose (the name)")
    parser.add_argument("--floor", default="0.0.1", help="the oldest version to be supported")
    parser.add_argument("--into", type=Path, help="another folder than integrations/")
    given = parser.parse_args()
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", given.name):
        parser.error(f"{given.name!r} is no name of this kind: lower case, digits, hyphens")
    names = {
        "NAME": given.name.replace("-", "_"),
        "DASHED": given.name,
        "TITLE": given.title or given.name,
        "UPSTREAM": given.upstream,
        "MODULE": given.module or given.upstream.replace("-", "_"),
        "FLOOR": given.floor,
    }
    folder = make(names, given.into or ROOT / "integrations")
    if given.into is None:
        make_known(names)
    print(f"made {folder}. Next: its call sites, contracts and seams, then ./dev matrix {given.name}")


if __name__ == "__main__":
    main()
