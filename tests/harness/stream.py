"""A plain HTTP/1.1 client that keeps every byte and its time, and the grammar that each transcript must obey."""
import json
import re
import socket
import time


class Cut(Exception):
    """The connection ended inside a body."""


class Response:
    """Status line, headers (lower case), and the body as it comes; `raw` holds every body byte after chunk decoding."""

    def __init__(self, sock):
        self.sock, self.buf, self.raw = sock, b'', b''
        head = self._until(b'\r\n\r\n')
        lines = head.decode('latin-1').split('\r\n')
        while lines[0].split(' ')[1] == '100':
            head = self._until(b'\r\n\r\n')
            lines = head.decode('latin-1').split('\r\n')
        self.status = int(lines[0].split(' ')[1])
        self.headers = {k.strip().lower(): v.strip() for k, v in (ln.split(':', 1) for ln in lines[1:] if ln)}
        self.complete = False

    def _more(self):
        d = self.sock.recv(65536)
        if not d:
            raise Cut('connection closed')
        self.buf += d

    def _until(self, mark):
        while mark not in self.buf:
            self._more()
        head, self.buf = self.buf.split(mark, 1)
        return head

    def _take(self, n):
        while len(self.buf) < n:
            self._more()
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def pieces(self):
        """Body bytes as they arrive; returns at the end that the framing promises, raises Cut at any other end."""
        if self.headers.get('transfer-encoding', '').lower() == 'chunked':
            while True:
                n = int(self._until(b'\r\n').split(b';')[0], 16)
                data = self._take(n)
                if self._take(2) != b'\r\n':
                    raise AssertionError('chunk without its line end')
                if n == 0:
                    break
                self.raw += data
                yield data
        elif 'content-length' in self.headers:
            left = int(self.headers['content-length'])
            while left:
                if not self.buf:
                    self._more()
                data, self.buf = self.buf[:left], self.buf[left:]
                left -= len(data)
                self.raw += data
                yield data
        else:
            try:
                while True:
                    if not self.buf:
                        self._more()
                    data, self.buf = self.buf, b''
                    self.raw += data
                    yield data
            except Cut:
                pass
        self.complete = True

    def read(self):
        for _ in self.pieces():
            pass
        return self.raw

    def json(self):
        if not self.complete:
            self.read()
        return json.loads(self.raw)

    def close(self):
        self.sock.close()


def connect(port, timeout=60):
    s = socket.create_connection(('127.0.0.1', port), timeout=timeout)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def request(port, method, path, body=None, headers=None, timeout=120, sock=None):
    """Sends one request and returns the Response with its head read. body: bytes, or anything that json can write."""
    if body is None:
        data = b''
    else:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
    h = {'Host': '127.0.0.1:%d' % port, 'Connection': 'close'}
    if body is not None:
        h.update({'Content-Type': 'application/json', 'Content-Length': str(len(data))})
    h.update(headers or {})
    s = sock or connect(port, timeout)
    s.settimeout(timeout)
    s.sendall(('%s %s HTTP/1.1\r\n' % (method, path)).encode() +
              ''.join('%s: %s\r\n' % kv for kv in h.items()).encode() + b'\r\n' + data)
    return Response(s)


def get(port, path, **kw):
    return request(port, 'GET', path, **kw)


def post(port, path, body, **kw):
    return request(port, 'POST', path, body, **kw)


class Stream:
    """One streaming request. Iterate over `events()`; afterwards `end` says how it ended and `text` what was said."""

    def __init__(self, port, path, body, timeout=120, headers=None):
        self.t0 = time.monotonic()
        self.path = path
        self.times = []  # arrival of each event with text
        self.texts = {}  # choice index -> text
        self.events_seen = []
        self.comments = 0
        self.end = None  # 'complete' or 'cut'
        self.r = post(port, path, dict(body, stream=True), timeout=timeout, headers=headers)

    @property
    def status(self):
        return self.r.status

    @property
    def text(self):
        return self.texts.get(0, '')

    def events(self):
        buf = b''
        try:
            for piece in self.r.pieces():
                buf += piece
                while b'\n\n' in buf:
                    raw, buf = buf.split(b'\n\n', 1)
                    ev = self._event(raw)
                    if ev is not None:
                        yield ev
            self.end = 'complete'
        except (Cut, ConnectionResetError):
            self.end = 'cut'
        self.rest = buf

    def _event(self, raw):
        if raw == b'' or raw.startswith(b':'):
            self.comments += 1
            self.events_seen.append(('comment', raw))
            return None
        self.events_seen.append(('event', raw))
        if raw == b'data: [DONE]':
            return None
        try:
            ev = json.loads(raw.split(b'data: ', 1)[1])
        except (ValueError, IndexError):
            return None  # the grammar check judges it
        for c in ev.get('choices', []):
            t = c.get('text') if 'text' in c else (c.get('delta') or {}).get('content')
            if t:
                self.texts[c.get('index', 0)] = self.texts.get(c.get('index', 0), '') + t
                self.times.append(time.monotonic())
        if 'content' in ev and 'choices' not in ev and ev['content']:
            self.texts[ev.get('index', 0)] = self.texts.get(ev.get('index', 0), '') + ev['content']
            self.times.append(time.monotonic())
        return ev

    def run(self, until_events=None):
        """Reads on; with until_events only until that many events with text have come. Returns self."""
        if not hasattr(self, '_it'):
            self._it = self.events()
        if until_events is not None and len(self.times) >= until_events:
            return self
        for _ in self._it:
            if until_events is not None and len(self.times) >= until_events:
                break
        return self

    def json_events(self):
        out = []
        for kind, raw in self.events_seen:
            if kind == 'event' and raw != b'data: [DONE]':
                try:
                    out.append(json.loads(raw.split(b'data: ', 1)[1]))
                except (ValueError, IndexError):
                    pass
        return out

    @property
    def usage(self):
        return next((e['usage'] for e in reversed(self.json_events()) if e.get('usage')), None)

    @property
    def finish(self):
        for e in self.json_events():
            for c in e.get('choices', []):
                if c.get('finish_reason'):
                    return c['finish_reason']
        return None


def check_transcript(s, allow=('normal', 'error')):
    """The grammar of law "a stream never ends silently". Returns 'normal' or 'error'; raises AssertionError for anything
    else. `s` is a Stream that was read to its end."""
    where = '%s: %r' % (s.path, s.r.raw[-400:])
    assert s.end == 'complete', 'cut off without a terminal form: ' + where
    if s.status != 200:
        check_error(s.status, s.r.headers, s.r.raw)
        kind = 'error'
    else:
        assert s.r.headers.get('content-type', '').startswith('text/event-stream'), s.r.headers
        assert s.rest == b'', 'bytes after the last event: %r' % s.rest
        kind = _check_events(s, where)
    assert kind in allow, '%s transcript not allowed here: %s' % (kind, where)
    return kind


def check_error(status, headers, body):
    """An error answer in the one shape of the contract."""
    e = json.loads(body)['error']
    assert e['code'] == status, e
    assert isinstance(e['message'], str) and e['message'], e
    assert isinstance(e['type'], str) and e['type'].endswith('_error'), e
    assert 'param' in e, e
    if status in (429, 503):
        assert re.fullmatch(r'[1-9][0-9]*', headers.get('retry-after', '')), (headers, e)


def _check_events(s, where):
    native = s.path.startswith('/completion')
    events = [raw for kind, raw in s.events_seen if kind == 'event']
    assert events, 'no event at all: ' + where
    if not native:
        assert events[-1] == b'data: [DONE]', 'no terminator: ' + where
        assert events.count(b'data: [DONE]') == 1, where
        events = events[:-1]
    parsed, broken = [], []
    for i, raw in enumerate(events):
        try:
            assert raw.startswith(b'data: ') and b'\n' not in raw
            parsed.append(json.loads(raw[6:]))
        except (ValueError, AssertionError):
            broken.append(i)
            parsed.append(None)
    errors = [i for i, e in enumerate(parsed) if e is not None and 'error' in e]
    if broken:
        # a half-written event, closed by the blank line, is allowed only right before the error event
        assert len(broken) == 1 and errors == [broken[0] + 1], 'event that is not one line of JSON: ' + where
    if errors:
        assert errors == [len(parsed) - 1], 'an error event must be the last: ' + where
        e = parsed[-1]['error']
        assert isinstance(e['message'], str) and isinstance(e['type'], str), e
        parsed = [e for e in parsed[:-1] if e is not None]
    chat = s.path.endswith('chat/completions')
    if native:
        stops = [i for i, e in enumerate(parsed) if e.get('stop')]
        assert stops == ([] if errors else [len(parsed) - 1]), where
        return 'error' if errors else 'normal'
    roles, finished = {}, {}
    for i, e in enumerate(parsed):
        assert len({p['id'] for p in parsed}) == 1, 'the id changed: ' + where
        if not e['choices']:
            assert 'usage' in e and i == len(parsed) - 1, where
            continue
        for c in e['choices']:
            n = c['index']
            assert n not in finished, 'text after the finish reason: ' + where
            if chat:
                if n not in roles:
                    assert c['delta'].get('role') == 'assistant', 'no role in the first chunk: ' + where
                    roles[n] = True
                else:
                    assert 'role' not in c['delta'], 'a second role: ' + where
            else:
                roles[n] = True
            if c['finish_reason'] is not None:
                finished[n] = c['finish_reason']
    if errors:
        return 'error'
    assert finished and set(finished) == set(roles), 'a choice without a finish reason: ' + where
    assert set(finished.values()) <= {'stop', 'length', 'tool_calls'}, finished
    return 'normal'
