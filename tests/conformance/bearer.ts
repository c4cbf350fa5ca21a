// Stands before the gateway with its key, because the conformance suite has no option for headers.
//
//   node bearer.ts PORT http://127.0.0.1:PORT/PATH KEY      on 127.0.0.1 only
//
// Adds `Authorization` and changes nothing else: Host and Origin stay, bodies and streams are passed on as they come, and
// whoever goes away takes the other side along.
import { createServer, request } from 'node:http';

const [port, target, key] = process.argv.slice(2);
const { hostname, port: targetPort, pathname } = new URL(target!);

createServer((req, res) => {
    const headers = ['Authorization', `Bearer ${key}`, ...without(req.rawHeaders, 'authorization')];
    const options = { host: hostname, port: targetPort, path: pathname, method: req.method, headers, setHost: false };
    const onward = request(options, answer => {
        res.writeHead(answer.statusCode!, without(answer.rawHeaders, 'transfer-encoding', 'connection', 'keep-alive'));
        res.flushHeaders();
        answer.pipe(res);
        answer.on('error', () => res.destroy());
    });
    onward.on('error', () => (res.headersSent ? res.destroy() : res.writeHead(502).end()));
    res.on('close', () => onward.destroy());
    req.pipe(onward);
}).listen(Number(port), '127.0.0.1');

/** Raw headers, names and values in turn, without the named ones. */
function without(raw: string[], ...names: string[]): string[] {
    return raw.flatMap((name, i) => (i % 2 === 0 && !names.includes(name.toLowerCase()) ? [name, raw[i + 1]!] : []));
}
