"""fastmcp's proxy as a gateway: `fastmcp_proxy.py SERVER PORT`; one bearer token."""

import sys

from fastmcp import FastMCP
from fastmcp.server.auth import StaticTokenVerifier

from fastmcp.server import create_proxy

auth = StaticTokenVerifier(tokens={"load-key": {"client_id": "load", "scopes": []}})
proxy = create_proxy(sys.argv[1], name="proxy", auth=auth)
proxy.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), path="/mcp", log_level="error", show_banner=False)
