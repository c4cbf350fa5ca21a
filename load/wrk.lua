-- The same call from wrk: a cross-check of our own generator. Arguments after `--`: tool, key.
function init(args)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Accept"] = "application/json, text/event-stream"
  wrk.headers["MCP-Protocol-Version"] = "2026-07-28"
  wrk.headers["Mcp-Method"] = "tools/call"
  wrk.headers["Mcp-Name"] = args[1]
  wrk.headers["Authorization"] = "Bearer " .. args[2]
  local head = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    .. '"io.modelcontextprotocol/clientCapabilities":{}},"name":"' .. args[1] .. '","arguments":{"marker":"call-1-of-1","answer":512,'
    .. '"title":"The export stops at page three","labels":["export","regression"],"priority":"high","estimate":2.5,"body":"'
  local prose = string.rep("It began with the release of last week; the build before it is fine. ", 20)
  wrk.body = head .. string.sub(prose, 1, 1024 - #head - 4) .. '"}}}'
end
function done(summary, latency, requests)
  local bad = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout
  io.write(string.format("wrk %d %d %d %d %d\n", summary.requests, bad, summary.duration, latency:percentile(50), latency:percentile(99)))
end
