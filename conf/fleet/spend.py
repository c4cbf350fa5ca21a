#!/usr/bin/env python3
"""Spends from a bucket of Toolgate's, as a model gateway could: spend.py HOST:PORT BUCKET LIMIT UNIT_MS [TOKENS]

    spend.py 127.0.0.1:6379 'toolgate:{key:ann}' 100 60000
"""
import pathlib
import socket
import sys

SCRIPT = (pathlib.Path(__file__).parent / "bucket.lua").read_bytes()


def take(redis, bucket, limit, unit_ms, want=1):
    """(tokens taken, whole tokens left, microseconds to the next): as bucket.lua returns them."""
    words = [b"EVAL", SCRIPT, b"1", *(str(word).encode() for word in (bucket, limit, unit_ms, want))]
    redis.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    answer = redis.makefile("rb")
    head = answer.readline()
    if head != b"*3\r\n":
        raise OSError(head.decode().strip() or "no answer")
    return tuple(int(answer.readline()[1:]) for _ in range(3))


if __name__ == "__main__":
    host, port = sys.argv[1].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=1) as redis:
        print(*take(redis, *sys.argv[2:]))
