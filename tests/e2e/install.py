"""Brings the pinned peers into `target/e2e`, once.

npm packages, two Python environments, and a Node.js when the machine's is too old.
"""

import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
NODE_MAJOR_MIN = 20
NODE_PACKAGE = "22.23.3"
INSTALL_TIMEOUT_S = 900


class Peers:
    """Where the installed peers are."""

    def __init__(self, home):
        self.home = home
        self.node = node(home)
        self.npm = home / "npm"
        self.legacy = home / "legacy" / "bin" / "python"
        self.modern = home / "modern" / "bin" / "python"
        install_npm(self.npm, self.node)
        install_python(home / "legacy", HERE / "requirements-legacy.txt")
        install_python(home / "modern", HERE / "requirements-modern.txt")
        for folder in ("clients", "servers"):  # beside node_modules, where Node.js looks for packages
            shutil.rmtree(self.npm / folder, ignore_errors=True)
            shutil.copytree(HERE / folder, self.npm / folder, ignore=shutil.ignore_patterns("__pycache__"))


def node(home):
    """A Node.js that is new enough: the machine's, or one from the npm registry."""
    own = shutil.which("node")
    if own:
        version = subprocess.run([own, "--version"], capture_output=True, text=True, check=True).stdout
        if int(re.match(r"v(\d+)", version)[1]) >= NODE_MAJOR_MIN:
            return own
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine())
    if machine is None:
        sys.exit(f"e2e: needs Node.js {NODE_MAJOR_MIN} or newer, and npm has none for {platform.machine()}")
    package = f"node-linux-{machine}"
    folder = home / "node"
    if fresh(folder, f"{package}@{NODE_PACKAGE}"):
        say(f"Node.js {NODE_PACKAGE} from npm ({own or 'no node'} is older than {NODE_MAJOR_MIN} or missing)")
        folder.mkdir(parents=True)
        (folder / "package.json").write_text("{}")
        run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", f"{package}@{NODE_PACKAGE}"], folder)
        done(folder, f"{package}@{NODE_PACKAGE}")
    return str(folder / "node_modules" / package / "bin" / "node")


def install_npm(folder, node_path):
    """`npm ci` of package-lock.json."""
    lock = (HERE / "package-lock.json").read_text()
    if not fresh(folder, lock):
        return
    say("npm packages: TypeScript SDK 1.x and 2.x, server-everything")
    folder.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder / name)
    path = f"{pathlib.Path(node_path).parent}{os.pathsep}{os.environ['PATH']}"
    run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder, env=os.environ | {"PATH": path})
    done(folder, lock)


def install_python(folder, requirements):
    """A virtual environment with exactly what `requirements` pins."""
    wanted = f"{sys.version}\n{requirements.read_text()}"
    if not fresh(folder, wanted):
        return
    say(f"Python environment of {requirements.name}")
    run([sys.executable, "-m", "venv", str(folder)], HERE)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(pip + ["--no-deps", "-r", str(requirements)], HERE)
    done(folder, wanted)


def fresh(folder, wanted):
    """Whether `folder` must be made anew; what is half made or of another version is removed."""
    mark = folder / ".installed"
    if mark.exists() and mark.read_text() == digest(wanted):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return True


def done(folder, wanted):
    """Marks `folder` as complete."""
    (folder / ".installed").write_text(digest(wanted))


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def run(command, folder, env=None):
    """Runs an installer; its words are shown when it fails."""
    result = subprocess.run(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
    )
    if result.returncode != 0:
        sys.exit(f"e2e: {' '.join(command)} failed:\n{result.stdout[-4000:]}")


def say(words):
    print(f"e2e: installing {words}", flush=True)
