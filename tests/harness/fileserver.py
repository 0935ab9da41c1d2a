"""An HTTP server of files that misbehaves on demand, and that looks like the hub where it is asked to."""
import hashlib
import http.server
import json
import struct
import threading
import time
import urllib.parse


def gguf(n, seed=1, part=None):
    """A model file of n bytes: one tensor of bytes. part: number from 0 and count, of a split file."""
    keys = [] if part is None else [(b'split.no', part[0]), (b'split.count', part[1])]
    head = b'GGUF' + struct.pack('<IQQ', 3, 1, len(keys))
    for name, value in keys:
        head += struct.pack('<Q', len(name)) + name + struct.pack('<II', 4, value)
    name = b't%d' % (part[0] if part else 0)
    at = (len(head) + 8 + len(name) + 4 + 8 + 4 + 8 + 31) // 32 * 32
    head += struct.pack('<Q', len(name)) + name + struct.pack('<IQIQ', 1, n - at, 24, 0)
    return head.ljust(at, b'\0') + hashlib.shake_128(b'%d' % seed).digest(n - at)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def do_GET(self):
        s = self.server.owner
        parts = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(parts.path)
        with s.lock:
            s.requests.append((path, dict(self.headers)))
            act = s.script.pop(0) if s.script else {}
        if path in s.needs_token and self.headers.get('Authorization') != 'Bearer ' + s.needs_token[path]:
            act = {'status': 401, 'headers': {'X-Error-Code': 'GatedRepo'}}
        if path in s.leads and 'status' not in act:
            return self.answer(302, b'Found. Redirecting', s.leads[path]())
        if path in s.signed and not s.signature_holds(parts.query):
            return self.answer(403, b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', {'Content-Type': 'application/xml'})
        if 'redirect' in act:
            return self.answer(302, b'moved', dict(act.get('headers', {}), Location=act['redirect']))
        if 'status' in act and act['status'] >= 400:
            return self.answer(act['status'], b'<html>no</html>', act.get('headers', {}))
        if path not in s.files:
            return self.answer(404, b'<html>not found</html>', {})
        self.send_file(s.files[path], act)

    def answer(self, status, body, headers):
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k, v)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, data, act):
        s = self.server.owner
        etag = act.get('etag', '"%s"' % sha256(data)[:16])
        headers = dict(act.get('headers', {}))
        if etag:
            headers['ETag'] = etag
        rng, start, status = self.headers.get('Range'), 0, 200
        fresh = self.headers.get('If-Range') in (None, etag) or act.get('ignore_if_range')
        if rng and fresh and not act.get('no_range'):
            start, status = int(rng[len('bytes='):].split('-')[0]), 206
            if start >= len(data):
                return self.answer(416, b'', {'Content-Range': 'bytes */%d' % len(data)})
            headers['Content-Range'] = act.get('content_range', 'bytes %d-%d/%d' % (start, len(data) - 1, len(data)))
        body = data[start:]
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k, v)
        if act.get('chunked'):
            self.send_header('Transfer-Encoding', 'chunked')
        elif not act.get('no_length'):
            self.send_header('Content-Length', str(act.get('length', len(body))))
        else:
            self.close_connection = True
        self.end_headers()
        end = min(act.get('cut', len(body)), len(body))
        step = act.get('step', 65536)
        for i in range(0, end, step):
            piece = body[i:min(i + step, end)]
            try:
                self.wfile.write(b'%x\r\n%s\r\n' % (len(piece), piece) if act.get('chunked') else piece)
            except OSError:
                self.close_connection = True
                return
            with s.lock:
                s.sent += len(piece)
            if 'pause' in act:
                time.sleep(act['pause'])
        if act.get('chunked') and end == len(body):
            self.wfile.write(b'0\r\n\r\n')
        if end < len(body) or 'length' in act:
            self.close_connection = True


class FileServer:
    """files: path -> bytes. script: what to do to the next requests, in order, e.g. {'cut': 1000}; then all goes well.
    requests: (path, headers) of each; sent: bytes of content that went out."""

    def __init__(self):
        self.files, self.script, self.requests, self.needs_token = {}, [], [], {}
        self.leads, self.signed, self.signatures = {}, set(), {}  # path -> headers of a redirect; paths that want a signature
        self.sent, self.lock = 0, threading.Lock()
        self.http = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.http.daemon_threads = True
        self.http.owner = self
        self.url = 'http://127.0.0.1:%d' % self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={'poll_interval': 0.05}, daemon=True)
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def hub(self, repo, files, commit='0123456789abcdef0123456789abcdef01234567', sums=True):
        """Offers {name: bytes} as a repository of the hub."""
        listing = {'sha': commit, 'siblings': [
            dict({'rfilename': n, 'size': len(d)}, **({'lfs': {'sha256': sha256(d), 'size': len(d)}} if sums else {}))
            for n, d in files.items()]}
        self.files['/api/models/%s/revision/main' % repo] = json.dumps(listing).encode()
        for n, d in files.items():
            self.files['/%s/resolve/%s/%s' % (repo, commit, n)] = d

    def sign(self, seconds):
        """The query of an address that holds for so long."""
        with self.lock:
            name = 'sig%d' % len(self.signatures)
            self.signatures[name] = time.monotonic() + seconds
        return 'Expires=1790000000&Policy=e30_&Signature=%s&Key-Pair-Id=K2' % name

    def signature_holds(self, query):
        name = urllib.parse.parse_qs(query).get('Signature', [''])[0]
        return self.signatures.get(name, 0) > time.monotonic()

    def hub_with_cdn(self, cdn, repo, files, lifetimes=(), **kw):
        """As hub, but large content comes from another server, to which a redirect leads with a signed address, as the real one
        does it. lifetimes: seconds that the first addresses hold; later ones hold for an hour."""
        self.hub(repo, files, **kw)
        left = list(lifetimes)
        for path in [p for p in self.files if '/resolve/' in p]:
            data = self.files.pop(path)
            there = '/repos/ab/cd/%s' % sha256(data)
            cdn.files[there] = data
            cdn.signed.add(there)

            def lead(data=data, there=there):
                return {'Location': '%s%s?%s' % (cdn.url, there, cdn.sign(left.pop(0) if left else 3600)), 'X-Linked-Size': str(len(data)),
                        'X-Linked-Etag': '"%s"' % sha256(data), 'X-Repo-Commit': '0123456789abcdef0123456789abcdef01234567',
                        'Accept-Ranges': 'bytes', 'Vary': 'Origin, Accept', 'ETag': '"of-the-redirect"'}
            self.leads[path] = lead

    def ranges(self):
        return [h.get('Range') for _, h in self.requests]
