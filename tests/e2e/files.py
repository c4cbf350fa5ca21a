#!/usr/bin/env python3
"""Files that nothing compiles: `toolgate check` accepts each conf file, systemd the unit, Prometheus its files, Python its scripts.

    files.py TOOLGATE
"""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONF_PATTERNS = ("conf/*.toml", "conf/profiles/*.toml", "conf/demo/toolgate.toml", "conf/fleet/toolgate.toml", "systemd/debian/toolgate.toml")
UNITS = {"toolgate.service": "toolgate.service", "toolgate@.service": "toolgate@node-1.service"}
SCRIPTS = ("benches", "conf", "load", "tests")
READ = """
import pathlib, runpy, sys
file, ours = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(file).parent))
try:
    runpy.run_path(file, run_name="read")
except ModuleNotFoundError as missing:  # a package that the script's own make target installs
    sys.exit(str(missing) if missing.name in ours.split(",") else 0)
"""
EXPOSURE_MAX = 1.5  # of 10, by `systemd-analyze security`


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    rows = [check(binary, conf) for pattern in CONF_PATTERNS for conf in sorted(ROOT.glob(pattern))]
    rows += [row for unit in UNITS for row in (verify(binary, unit), exposure(unit))]
    rows += prometheus()
    rows.append(scripts())
    for name, fault in rows:
        print(f"{'ok    ' if fault is None else 'FAILED'} {name}{'' if fault is None else ': ' + fault}")
    failed = sum(fault is not None for _, fault in rows)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


def check(binary, conf):
    """`check` accepts the file and writes nothing beside it."""
    before = listing(conf.parent)
    name = f"toolgate check --conf {conf.relative_to(ROOT)}"
    fault = run([binary, "check", "--conf", conf])
    written = listing(conf.parent) - before
    return name, fault or (f"it wrote {written}" if written else None)


def listing(folder):
    return {str(path) for path in folder.rglob("*")}


def verify(binary, name):
    """`systemd-analyze verify` on the unit, with the binary that was built in the place of the installed one."""
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / UNITS[name]
        unit.write_text((ROOT / "systemd" / name).read_text().replace("/usr/bin/toolgate", str(binary)))
        return f"systemd-analyze verify {name}", run(["systemd-analyze", "verify", "--man=no", unit])


def exposure(name):
    """The unit stays hardened."""
    threshold = f"--threshold={round(EXPOSURE_MAX * 10)}"
    fault = run(["systemd-analyze", "security", "--offline=true", "--no-pager", threshold, ROOT / "systemd" / name])
    return f"systemd-analyze security {name}: exposure at most {EXPOSURE_MAX}", fault


def prometheus():
    """promtool takes the scrape job and the rules, and the rules' own tests pass."""
    folder = ROOT / "conf" / "prometheus"
    for words, file in (
        (["check", "config"], "scrape.yml"),
        (["check", "rules"], "toolgate.rules.yml"),
        (["test", "rules"], "toolgate.rules.test.yml"),
    ):
        yield f"promtool {' '.join(words)} {file}", run(["promtool", *words, folder / file])


def scripts():
    """Every Python file is read as far as its definitions, and finds what it takes from the others."""
    files = [file for folder in SCRIPTS for file in sorted((ROOT / folder).rglob("*.py")) if "node_modules" not in file.parts]
    ours = ",".join(file.stem for file in files)
    faults = [f"{file.relative_to(ROOT)}: {fault}" for file in files if (fault := run([sys.executable, "-c", READ, file, ours]))]
    return f"{len(files)} Python files find what they import", "; ".join(faults) or None


def run(command):
    """None when `command` succeeds, else what it said."""
    result = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return None if result.returncode == 0 else f"exit {result.returncode}\n{result.stdout[-3000:]}"


if __name__ == "__main__":
    sys.exit(main())
