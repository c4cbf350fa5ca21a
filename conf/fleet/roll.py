#!/usr/bin/env python3
"""Rolls an upgrade, or a change of conf and policy files, through the nodes of a fleet: one after the other, and no further than the first
that does not come up.

    roll.py restart node-1=127.0.0.1:9911 node-2=127.0.0.1:9912 --haproxy /run/haproxy/admin.sock
    roll.py reload  node-1=127.0.0.1:9911 node-2=127.0.0.1:9912

A node is its name in HAProxy and its `ops.listen`. The commands are systemd's unless given; {node} is the name.
"""
import argparse
import re
import socket
import subprocess
import sys
import time
import urllib.request

LIMIT_S = 90


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("what", choices=["restart", "reload"])
    arguments.add_argument("nodes", nargs="+", metavar="NAME=OPS")
    arguments.add_argument("--haproxy", help="HAProxy's admin socket: a node is taken out before it restarts")
    arguments.add_argument("--backend", default="nodes")
    arguments.add_argument("--command", help="what restarts or reloads a node; it returns when that is done")
    given = arguments.parse_args()
    command = given.command or f"systemctl {given.what} toolgate@{{node}}"
    for name, ops in (node.split("=", 1) for node in given.nodes):
        print(f"{name}: {given.what}", flush=True)
        if given.what == "restart":
            restart(given, name, ops, command.format(node=name))
        else:
            reload(name, ops, command.format(node=name))


def restart(given, name, ops, command):
    """Out of the balancer, until what runs there has ended; then the new process; then in again."""
    server = f"{given.backend}/{name}"
    if given.haproxy:
        haproxy(given.haproxy, f"set server {server} state drain")
        until(f"{name}: no call runs", lambda: haproxy_value(given.haproxy, server, "scur") == "0")
    subprocess.run(command, shell=True, check=True)
    until(f"{name}: ready", lambda: ask(ops, "/readyz")[0] == 200)
    if given.haproxy:
        haproxy(given.haproxy, f"set server {server} state ready")
        until(f"{name}: in again", lambda: haproxy_value(given.haproxy, server, "status").startswith("UP"))


def reload(name, ops, command):
    """The node says whether it took the files: all of them, or none."""
    before = swaps(ops)
    subprocess.run(command, shell=True, check=True)
    until(f"{name}: answered", lambda: swaps(ops) != before)
    if swaps(ops)["rejected"] > before["rejected"]:
        sys.exit(f"{name} rejected the files, see its log; the nodes after it were left as they are")


def swaps(ops):
    """Policies that were taken and rejected so far."""
    text = ask(ops, "/metrics")[1]
    found = dict(re.findall(r'^toolgate_snapshot_swaps_total\{result="(\w+)"\} (\S+)', text, re.M))
    return {result: float(found.get(result, 0)) for result in ("applied", "rejected")}


def ask(ops, path):
    """Status and body; (0, "") while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://{ops}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as why:
        return why.code, ""
    except OSError:
        return 0, ""


def haproxy(path, command):
    """What HAProxy's admin socket answers."""
    with socket.socket(socket.AF_UNIX) as admin:
        admin.connect(path)
        admin.sendall(command.encode() + b"\n")
        answer = b"".join(iter(lambda: admin.recv(65536), b""))
    return answer.decode()


def haproxy_value(path, server, name):
    """A column of HAProxy's table."""
    head, *rows = haproxy(path, "show stat").lstrip("# ").splitlines()
    columns = head.split(",")
    for row in rows:
        values = dict(zip(columns, row.split(",")))
        if f"{values.get('pxname')}/{values.get('svname')}" == server:
            return values[name]
    sys.exit(f"HAProxy knows no {server}")


def until(what, holds):
    """Waits until `holds` is true; ends the roll when it never is."""
    end = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > end:
            sys.exit(f"not within {LIMIT_S} s: {what}; the nodes after it were left as they are")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
