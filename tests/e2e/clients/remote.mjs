// mcp-remote: a bridge from stdio to HTTP, as desktop hosts use it, driven by TypeScript SDK 1.x; see driver.mjs.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { drive } from './driver.mjs';

const bridge = join(process.env.E2E_WIDE, 'node_modules/mcp-remote/dist/proxy.js');

await drive(async ({ url, token }) => {
  const client = new Client({ name: 'e2e-remote', version: '1' }, { capabilities: {} });
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [bridge, url, '--header', 'Authorization:${AUTH_HEADER}', '--transport', 'http-only', '--allow-http'],
    env: {
      PATH: process.env.PATH,
      AUTH_HEADER: `Bearer ${token}`,
      MCP_REMOTE_CONFIG_DIR: mkdtempSync(join(tmpdir(), 'e2e-remote-')),
    },
    stderr: 'inherit',
  });
  await client.connect(transport);
  // The SDK hands a notification on a turn later than an answer, with which it forgets who waits for progress: of two lines in one
  // read it would lose the last progress. A turn for each line keeps their order.
  const take = transport.onmessage;
  transport.onmessage = (...message) => setImmediate(() => take(...message));
  return {
    list: async () => (await client.listTools()).tools,
    call: (request, options) => client.callTool(request, undefined, options),
    close: () => client.close(),
  };
});
