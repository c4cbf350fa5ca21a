"""Registers the mock server with ContextForge and writes the header of a key: `contextforge_setup.py SERVER PORT HEADERS`."""

import json
import os
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request


def main(server, port, headers):
    token = subprocess.run(
        [sys.executable, "-m", "mcpgateway.utils.create_jwt_token", "--username", os.environ["PLATFORM_ADMIN_EMAIL"], "--admin", "--exp", "600",
         "--secret", os.environ["JWT_SECRET_KEY"]],
        stdout=subprocess.PIPE, text=True, check=True).stdout.strip().splitlines()[-1]
    body = json.dumps({"name": "mock", "url": server, "transport": "STREAMABLEHTTP", "visibility": "public"}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/gateways", body,
                                     {"authorization": f"Bearer {token}", "content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        sys.exit(f"HTTP {error.code}: {error.read().decode()[:1000]}")
    pathlib.Path(headers).write_text(f"Authorization: Bearer {token}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
