"""An MCP server that a test sets: its tools, its era, how it answers a call."""

import http.server
import json
import threading

MODERN = {"server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
LEGACY = {"initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "mock", "version": "1"}}}


class Server:
    """Serves on a free port of 127.0.0.1 until it is stopped, on any path.

    It speaks 2026-07-28, or 2025-11-25 if it is `legacy`, then with a session if it has one. `answer(tool, arguments)` gives the result
    of a call, or the HTTP status of a failure. `pages` are answered to GET, by path.
    """

    def __init__(self, *tools, legacy=False, session=None, answer=lambda tool, arguments: {"content": []}):
        self.tools, self.pages = {}, {}
        for tool in tools:
            self.set(tool)
        self.legacy, self.session, self.answer, self.stopped = legacy, session, answer, False
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.http.handle_error = lambda *_: None  # connections that the gateway drops at its end
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def set(self, tool):
        """Adds or replaces a tool."""
        self.tools[tool.get("name")] = tool

    def result(self, method, params):
        """The answer to a method: a result, an HTTP status, or None for a method that it does not know."""
        if method == "tools/call":
            result = self.answer(params["name"], params.get("arguments", {}))
            return result if self.legacy or isinstance(result, int) else result | {"resultType": "complete"}
        if method == "tools/list":
            listed = {"tools": list(self.tools.values())}
            return listed if self.legacy else listed | {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
        known = (LEGACY if self.legacy else MODERN).get(method)
        return known if self.legacy or known is None else known | {"resultType": "complete"}

    def stop(self):
        """Takes no connection and answers nothing from now on."""
        self.stopped = True
        self.http.shutdown()
        self.http.server_close()


def handler(server):
    """The HTTP side of a server."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if server.stopped:
                self.close_connection = True
            elif "id" not in message:
                self.send(202)
            else:
                result = server.result(message["method"], message.get("params") or {})
                if isinstance(result, int):
                    return self.send(result)
                tail = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
                self.send(200, {"jsonrpc": "2.0", "id": message["id"]} | tail, message["method"] == "initialize")

        def do_GET(self):
            page = server.pages.get(self.path)
            self.send(405 if page is None else 200, page)

        def do_DELETE(self):
            self.send(200)

        def send(self, status, answer=None, begins=False):
            body = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if begins and server.session:
                self.send_header("Mcp-Session-Id", server.session)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler
