"""The one table that closes `make test`: how many rows each file of the suite played and how many were wrong.

Reads what `tests/support/mod.rs` noted in target/counts; a file's title is its first line. Fails when a row was wrong, or when
nothing was noted.
"""

import pathlib
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]


def title(module):
    suite = ROOT / "tests" / "suite"
    path = next(path for path in (suite / f"{module}.rs", suite / module / "mod.rs") if path.exists())
    first = path.read_text(encoding="utf-8").split("\n\n")[0].replace("//! ", "").replace("\n", " ")
    return textwrap.shorten(first.split(". ")[0].rstrip("."), 120, placeholder=" …")


def main(folder):
    tables = {}
    for path in sorted(folder.glob("*.rows.txt")):
        played, wrong = map(int, path.read_text(encoding="utf-8").split())
        have = tables.setdefault(path.name.split(".")[0], [0, 0, 0])
        have[0] += 1
        have[1] += played
        have[2] += wrong
    print("\n  rows  wrong  table")
    for module, (_, played, wrong) in sorted(tables.items()):
        print(f"{played:6}  {wrong:5}  {module}: {title(module)}")
    played, wrong = sum(t[1] for t in tables.values()), sum(t[2] for t in tables.values())
    print(f"{played:6}  {wrong:5}  together, in {sum(t[0] for t in tables.values())} tables")
    return 0 if played and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
