"""Python SDK 2.x: mode `legacy`, `auto` or a pinned revision; see driver.py."""

import contextlib

import anyio
import httpx2
from driver import drive
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client


@contextlib.asynccontextmanager
async def connect(url, token, mode):
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            yield client


anyio.run(drive, connect)
