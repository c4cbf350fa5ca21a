"""An MCP server (2026-07-28) whose tools a test sets: just enough to be listed and called."""

import http.server
import json
import threading


class Server:
    """Serves on a free port of 127.0.0.1 until the process ends."""

    def __init__(self, *tools):
        self.tools = {}
        for tool in tools:
            self.set(tool)
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/mcp"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def set(self, tool):
        """Adds or replaces a tool."""
        self.tools[tool["name"]] = tool

    def result(self, method):
        """The answer to a method."""
        results = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
            "tools/list": {"tools": list(self.tools.values()), "ttlMs": 0, "cacheScope": "private"},
        }
        return results.get(method, {"content": []}) | {"resultType": "complete"}


def handler(server):
    """The HTTP side of a server."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": server.result(message.get("method"))}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler
