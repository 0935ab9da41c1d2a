"""A server with the OpenAI API that does what its arguments say: for tests of external engines.

openai_server.py PORT [load-until=FILE] [rate=TOKENS/S] [die-after=N] [cut-after=N] [stuck-after=N] [once=FILE] [chat-only] [no-done]
Its tokens are w0, w1, w2 ...; die-after ends the process in the middle of a stream, cut-after ends the stream in the
middle of an event, stuck-after does nothing more for it; all only while FILE can be removed, if once is given. /metrics counts tokens.
"""
import http.server
import json
import os
import sys
import threading
import time

OPTIONS = dict(a.partition('=')[::2] for a in sys.argv[2:])
COUNT = [0]


def due():
    if 'once' not in OPTIONS:
        return True
    try:
        os.unlink(OPTIONS['once'])
        return True
    except OSError:
        return False


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def answer(self, status, body, kind='application/json'):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_HEAD(self):
        self.send_response(200)
        self.send_header('Content-Length', '5')
        self.end_headers()

    def do_GET(self):
        if self.path == '/v1/models':
            self.answer(200, {'id': 'cmpl-1', 'created': 1, 'model': 'scripted-7b', 'object': 'list', 'data': [{'id': 'scripted-7b', 'object': 'model'}]})
        elif self.path == '/metrics':
            self.answer(200, b'# TYPE tokens counter\nscripted_tokens_total %d\n' % COUNT[0], 'text/plain')
        else:
            self.answer(404, {'error': {'message': 'not here', 'type': 'not_found_error', 'code': 404}})

    def chunk(self, data):
        self.wfile.write(b'%x\r\n%s\r\n' % (len(data), data))
        self.wfile.flush()

    def do_POST(self):
        q = json.loads(self.rfile.read(int(self.headers.get('Content-Length', 0))) or '{}')
        if not os.path.exists(OPTIONS.get('load-until', '/')):
            return self.answer(503, {'error': {'message': 'Loading model', 'type': 'unavailable_error', 'code': 503}})
        chat = self.path == '/v1/chat/completions'
        if self.path not in ('/v1/completions', '/v1/chat/completions') or (not chat and 'chat-only' in OPTIONS):
            return self.answer(404, {'error': {'message': 'no such route', 'type': 'not_found_error', 'code': 404}})
        if q.get('model') not in (None, 'scripted-7b'):
            return self.answer(404, {'error': {'message': 'no such model', 'type': 'not_found_error', 'code': 404}})
        n, rate = q.get('max_tokens', 16), float(OPTIONS.get('rate', 1000))
        if not q.get('stream'):
            for _ in range(n):
                time.sleep(1 / rate)
                COUNT[0] += 1
            text = ' '.join('w%d' % i for i in range(n))
            choice = {'index': 0, 'finish_reason': 'length'}
            choice.update({'message': {'role': 'assistant', 'content': text}} if chat else {'text': text})
            return self.answer(200, {'id': 'cmpl-1', 'created': 1, 'model': 'scripted-7b', 'object': 'chat.completion' if chat else 'text_completion', 'choices': [choice],
                                     'usage': {'completion_tokens': n}})
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream; charset=utf-8')
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        for i in range(n):
            time.sleep(1 / rate)
            COUNT[0] += 1
            word = 'w%d ' % i
            part = {'delta': dict({'role': 'assistant'} if i == 0 else {}, content=word)} if chat else {'text': word}
            event = b'data: ' + json.dumps({'id': 'cmpl-1', 'object': 'chat.completion.chunk' if chat else 'text_completion', 'created': 1, 'model': 'scripted-7b', 'choices': [dict(part, index=0, finish_reason='length' if i == n - 1 else None)]}).encode() + b'\n\n'
            if 'die-after' in OPTIONS and i == int(OPTIONS['die-after']) and due():
                self.chunk(event[:len(event) // 2])
                os._exit(int(OPTIONS.get('exit', 1)))
            if 'cut-after' in OPTIONS and i == int(OPTIONS['cut-after']) and due():
                self.chunk(event[:len(event) // 2])
                self.connection.close()
                return
            if 'stuck-after' in OPTIONS and i == int(OPTIONS['stuck-after']) and due():
                threading.Event().wait()
            self.chunk(event)
        if 'no-done' not in OPTIONS:
            self.chunk(b'data: [DONE]\n\n')
        self.wfile.write(b'0\r\n\r\n')


if __name__ == '__main__':
    server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Event().wait()
