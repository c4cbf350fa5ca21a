// Preloaded before a server that would listen on every interface: a bare `listen(port)` binds 127.0.0.1.
import net from 'node:net';

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  const bare = (typeof port === 'number' || typeof port === 'string') && typeof rest[0] !== 'string';
  return bare ? listen.call(this, Number(port), '127.0.0.1', ...rest) : listen.call(this, port, ...rest);
};
