"""Command-line clients: each step is a process of its own. The script is that of driver.mjs; what they do not print is named.

The mode is `fastmcp`, or `inspector` with the era that it is to speak: `inspector legacy`.
"""

import json
import os
import pathlib
import subprocess
import sys

STEP_TIMEOUT_S = 60


def main():
    """Plays the script on stdin."""
    script = json.loads(sys.stdin.readline())
    tool, _, era = script["mode"].partition(" ")
    ask = fastmcp if tool == "fastmcp" else inspector
    for session in script["sessions"]:
        say({})
        for step in session["steps"]:
            if step["op"] == "wait":
                say({"waiting": True})
                sys.stdin.readline()
                say({})
            else:
                say(ask(session["url"], session["token"], step, era))


def fastmcp(url, token, step, _era):
    """`fastmcp list` and `fastmcp call`; prints neither `_meta` nor progress."""
    words = ["list", url] if step["op"] == "list" else ["call", url, step["name"]]
    words += [f"{name}={plain(value)}" for name, value in step.get("arguments", {}).items()]
    code, out = run([pathlib.Path(sys.executable).with_name("fastmcp"), *words, "--auth", token, "--json"])
    told = first(out)
    if told is None:
        return {"error": {"code": None, "message": f"exit {code}: {out[-500:]}"}}
    if step["op"] == "list":
        return {"tools": told["tools"]}
    names = {"is_error": "isError", "structured_content": "structuredContent"}
    return {"result": {names.get(name, name): value for name, value in told.items()}, "hides": "_meta"}


def inspector(url, token, step, era):
    """`mcp-inspector --cli`; prints no progress."""
    node, home = os.environ["E2E_NODE22"], pathlib.Path(os.environ["E2E_WIDE"])
    script = home / "node_modules/@modelcontextprotocol/inspector" / entry(home)
    words = ["--cli", url, "--transport", "http", "--protocol-era", era, "--header", f"Authorization: Bearer {token}"]
    words += ["--method", "tools/list" if step["op"] == "list" else "tools/call"]
    if step["op"] == "call":
        words += ["--tool-name", step["name"]]
        for name, value in step["arguments"].items():
            words += ["--tool-arg", f"{name}={plain(value)}"]
    code, out = run([node, script, *words])
    told = first(out)
    if told is None or "error" in told:
        return {"error": {"code": None, "message": f"exit {code}: {out[-500:]}"}}
    return {"tools": told["tools"]} if step["op"] == "list" else {"result": told}


def entry(home):
    """The script that the package installs as a command."""
    package = json.loads((home / "node_modules/@modelcontextprotocol/inspector/package.json").read_text())
    return package["bin"]["mcp-inspector"]


def run(command):
    """Runs a command; gives its exit code and all that it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=STEP_TIMEOUT_S,
        env=os.environ | {"FASTMCP_CHECK_FOR_UPDATES": "off", "NO_COLOR": "1"},
    )
    return done.returncode, done.stdout


def first(text):
    """The first JSON object that was printed."""
    at = text.find("{")
    while at >= 0:
        try:
            return json.JSONDecoder().raw_decode(text, at)[0]
        except ValueError:
            at = text.find("{", at + 1)
    return None


def plain(value):
    """A value as it is typed."""
    return value if isinstance(value, str) else json.dumps(value)


def say(line):
    """One line of JSON, at once."""
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
